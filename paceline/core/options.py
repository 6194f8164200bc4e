"""How an extension is named in the config, with its own options."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """One part of the config: frozen, and a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Options(BaseModel):
    """A named extension and its own options, e.g. {name: ssp, bound: 3}; the extension itself checks them."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def named(value: Any) -> Any:
    """'stratified' as {'name': 'stratified'}: an extension whose options all have their defaults."""
    return {"name": value} if isinstance(value, str) else value


Named = Annotated[Options, BeforeValidator(named)]

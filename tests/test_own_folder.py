import sys
import sysconfig

import pytest

from paceline.own_folder import installed_first


@pytest.mark.parametrize("own", ["", "/home/user/notebooks"])
@pytest.mark.parametrize("variable", [None, "", "/opt/libraries", ":/opt/libraries"])
def test_the_users_folder_comes_last_also_where_python_calls_it_nothing(
    own: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt, a notebook and `python -c` have '' for the working folder."""
    if variable is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", variable)
    before = [own, "/opt/libraries", sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]]
    monkeypatch.setattr(sys, "path", list(before))

    with installed_first():
        assert sys.path.index(own) > sys.path.index(sysconfig.get_paths()["purelib"])

    assert sys.path == before


def test_what_a_tasks_file_adds_to_the_path_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [sysconfig.get_paths()["stdlib"]])

    with installed_first():
        sys.path.append("/home/user/modules")

    assert sys.path == ["/home/user/modules", sysconfig.get_paths()["stdlib"]]

"""Files that only this user may read: replaced as a whole, but for links and devices."""

from pathlib import Path

from paceline.base.private import write_private


def test_a_file_is_replaced_by_one_that_only_this_user_may_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    (tmp_path / "a").chmod(0o644)
    write_private(tmp_path / "a", b"word")
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "a").stat().st_mode & 0o777) == (b"word", 0o600)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "behind")
    write_private(tmp_path / "out", b"word")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "behind").read_bytes() == b"word"
    write_private(Path("/dev/null"), b"word")
    assert Path("/dev/null").is_char_device()

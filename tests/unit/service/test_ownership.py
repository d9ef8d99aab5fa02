"""One rule for whatever leads to code or settings: who may have written it."""

import grp
import os
import pwd
from types import SimpleNamespace

import pytest

from batchfleet.service.ownership import why_not_ours, why_not_ours_within

STRANGER = 65432


@pytest.fixture
def place(tmp_path):
    """A file in a folder, both of them this user's alone."""
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    path = folder / "file"
    path.write_text("")
    path.chmod(0o644)
    return path


@pytest.fixture
def belongs_to_another(monkeypatch):
    """Give a path to somebody who is neither root nor this user."""

    def give(path):
        if os.geteuid() == 0:
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: STRANGER)

    return give


def test_what_nobody_else_may_write_is_ones_own(place):
    assert why_not_ours([place, place.parent]) == ""
    assert why_not_ours([]) == ""


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o602])
def test_a_file_that_anybody_may_write_is_named_with_its_mode(place, mode):
    place.chmod(mode)
    assert f"every user can write to {place} (mode {mode:04o}; chmod o-w)" in why_not_ours([place])


def test_so_is_each_folder_on_the_way_to_it(place):
    place.parent.chmod(0o777)
    assert f"{place.parent} (mode 0777" in why_not_ours([place])


def test_a_sticky_folder_is_a_way_and_not_an_end(place):
    place.parent.chmod(0o1777)
    assert why_not_ours([place]) == ""
    assert "every user can write" in why_not_ours([place.parent])


def test_a_sticky_folder_lets_nobody_elses_file_pass(place, belongs_to_another):
    place.parent.chmod(0o1777)
    belongs_to_another(place)
    assert "belongs to user" in why_not_ours([place])


@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_belongs_to_another_is_named(place, belongs_to_another, which):
    belongs_to_another(place if which == "file" else place.parent)
    assert "belongs to user" in why_not_ours([place])


def test_what_belongs_to_root_is_everybodys_own(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    assert why_not_ours(["/etc/passwd"]) == ""


@pytest.mark.parametrize(("group", "members", "is_own"), [
    ("me", (), True), ("me", ("me",), True), ("me", ("other",), False), ("staff", (), False),
])  # fmt: skip
def test_a_group_counts_as_the_user_where_it_is_his_alone(
    place, monkeypatch, group, members, is_own
):
    place.chmod(0o664)
    if os.geteuid() == 0:
        os.chown(place, 0, STRANGER)
    found = SimpleNamespace(gr_name=group, gr_mem=list(members))
    monkeypatch.setattr(grp, "getgrgid", lambda _: found)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="me"))
    assert (why_not_ours([place]) == "") is is_own


def test_a_user_whom_the_system_does_not_know_has_no_group(place, monkeypatch):
    def unknown(_):
        raise KeyError

    place.chmod(0o664)
    if os.geteuid() == 0:
        os.chown(place, 0, STRANGER)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert "its group can write" in why_not_ours([place])


def test_a_link_is_followed_and_its_own_folder_counts_too(place, tmp_path, belongs_to_another):
    aside = tmp_path / "aside"
    aside.mkdir(mode=0o755)
    link = aside / "link"
    link.symlink_to("../folder/../folder/file")
    assert why_not_ours([link]) == ""
    place.chmod(0o666)
    assert f"every user can write to {place}" in why_not_ours([link])
    place.chmod(0o644)
    aside.chmod(0o777)
    assert f"every user can write to {aside}" in why_not_ours([link])


def test_a_link_of_another_is_not_ones_own(place, belongs_to_another):
    link = place.with_name("link")
    link.symlink_to(place)
    place.parent.chmod(0o1777)
    belongs_to_another(link)
    assert "belongs to user" in why_not_ours([link])


def test_what_cannot_be_looked_at_is_not_ones_own(place):
    assert "cannot be inspected" in why_not_ours([place / "below"])
    assert "cannot be inspected" in why_not_ours([place.with_name("absent")])
    loop = place.with_name("loop")
    loop.symlink_to(loop)
    assert "cannot be inspected" in why_not_ours([loop])


def test_modes_of_roots_files_mean_nothing_where_nobody_can_write(place, monkeypatch):
    """As in the volumes of a container; that of others' files still does."""
    if os.geteuid() != 0:
        pytest.skip("only root has files of root's")
    place.chmod(0o666)
    real = os.statvfs
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda at: read_only if at == place else real(at))
    assert why_not_ours([place]) == ""
    os.chown(place, STRANGER, STRANGER)
    assert "belongs to user" in why_not_ours([place])


def test_a_folder_is_looked_through_to_the_last_file(place, tmp_path):
    """X1, X11: all that lies in a Python environment may be run."""
    assert why_not_ours_within(place.parent) == ""
    deep = place.parent / "lib" / "deep"
    deep.mkdir(parents=True)
    (deep / "module.py").write_text("")
    (place.parent / "lib64").symlink_to("lib")
    (deep / "round").symlink_to(place.parent)
    (deep / "nowhere").symlink_to("nothing/at/all")
    assert why_not_ours_within(place.parent) == ""
    (deep / "module.py").chmod(0o666)
    assert f"every user can write to {deep / 'module.py'}" in why_not_ours_within(place.parent)
    (deep / "module.py").chmod(0o644)
    deep.chmod(0o1777)
    assert f"every user can write to {deep}" in why_not_ours_within(place.parent)


def test_so_are_the_folders_that_links_of_it_lead_to(place, tmp_path):
    """X1 (link): what is imported by way of a link is imported all the same."""
    out = tmp_path / "out"
    (out / "package").mkdir(parents=True)
    (out / "package" / "module.py").write_text("")
    (place.parent / "link").symlink_to(out)
    assert why_not_ours_within(place.parent) == ""
    (out / "package" / "module.py").chmod(0o666)
    assert f"every user can write to {out}/package/module.py" in why_not_ours_within(place.parent)


def test_a_link_to_what_anybody_could_make_is_refused(place, tmp_path):
    """X1 (link): sibling of the link to what others have made."""
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (place.parent / "link").symlink_to(sticky / "not-there-yet")
    assert f"every user can write to {sticky}" in why_not_ours_within(place.parent)
    assert "cannot be inspected" in why_not_ours_within(tmp_path / "missing")

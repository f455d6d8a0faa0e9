"""Where the content of a file with a given MD5 is kept: in the working tree, in DVC's cache, or in
a DVC remote.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.repo import Repo


@dataclass(frozen=True, slots=True)
class Kept:
    """The content, None when nothing has it or what has it is damaged; where it is, or what is
    wrong.
    """

    content: bytes | None
    where: str
    intact: bool


class Store:
    """Looks for contents by MD5. Works without a DVC repository, but then keeps nothing."""

    def __init__(self, folder: Path = Path()) -> None:
        self.folder = folder

    def find(self, path: str, md5: str) -> Kept:
        """The content that had this MD5 at this path. Not intact: damaged, lost, changed, or not
        kept.
        """
        here = self._here(path)
        tracked = self._tracked.get(str((self.folder / path).resolve()))
        if here is not None and _md5(here) != md5 and tracked == md5:
            return Kept(
                None, f"the file in the working tree is {_md5(here)}, not what DVC recorded", False
            )
        kept, where = self._kept(md5)
        if kept is not None and _md5(kept) != md5:
            return Kept(None, f"the copy in {where} is damaged: it is {_md5(kept)}", False)
        if here is not None and _md5(here) == md5:
            if kept is None:
                return Kept(
                    here,
                    "only in the working tree, where the next run replaces it; `dvc commit`"
                    " keeps it",
                    False,
                )
            return Kept(here, f"in the working tree and in {where}", True)
        if kept is None:
            return Kept(None, "neither in the working tree nor in DVC's cache or remote", False)
        return Kept(
            kept,
            f"in {where}" + (", the working tree has another" if here is not None else ""),
            True,
        )

    def changed(self, path: str, md5: str) -> str:
        """What the working tree and DVC's records have in place of a file with this MD5, nothing
        where they have it, or there is no DVC here.
        """
        tracked = self._tracked.get(str((self.folder / path).resolve()))
        here = self._here(path)
        if self._repo is None:
            return ""
        if tracked is None:
            return "DVC's records have no digest of it: dvc.lock was changed or deleted"
        if tracked != md5 or (here is not None and _md5(here) != md5):
            found = tracked if here is None or tracked != md5 else _md5(here)
            return f"it was changed after the version was registered: expected {md5}, found {found}"
        return ""

    def _here(self, path: str) -> bytes | None:
        try:
            return (self.folder / path).read_bytes()
        except OSError:
            return None

    @cached_property
    def _repo(self) -> Any:
        try:
            return Repo(str(self.folder))
        except NotDvcRepoError:
            return None

    @cached_property
    def _tracked(self) -> dict[str, str]:
        """Absolute path -> MD5 of the files that DVC recorded, those in folders included."""
        found: dict[str, str] = {}
        try:
            outs = self._repo.index.outs if self._repo else []
        except DvcException:
            return found
        for out in outs:
            if out.hash_info is None or not out.hash_info.value:
                continue
            found[out.fs_path] = out.hash_info.value
            if out.hash_info.isdir and (tree := out.get_obj()) is not None:
                for parts, _, hashed in tree:
                    found[str(Path(out.fs_path, *parts))] = hashed.value
        return found

    def _kept(self, md5: str) -> tuple[bytes | None, str]:
        """The content from DVC's cache, else from its default remote; None when neither has it."""
        if self._repo is None:
            return None, ""
        cache = self._repo.cache.local
        if cache.exists(md5):
            return bytes(cache.fs.cat_file(cache.oid_to_path(md5))), "DVC's cache"
        try:
            remote = self._repo.cloud.get_remote_odb()
            if remote.exists(md5):
                return bytes(remote.fs.cat_file(remote.oid_to_path(md5))), "the DVC remote"
        except (DvcException, OSError):
            pass
        return None, ""


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()

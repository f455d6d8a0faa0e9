"""Lookup of a file's content by MD5: in the working tree, in DVC's cache, or in a DVC remote."""

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.repo import Repo

from ttsgraph.base.errors import DataError
from ttsgraph.base.files import md5 as digest_of
from ttsgraph.base.wording import first_line


class StoredContent(NamedTuple):
    """Content found for an MD5 (None if there is no intact copy), and where it is or what is wrong.
    If it is not `intact`, it is lost or could soon be.
    """

    content: bytes | None
    where: str
    intact: bool


class Store:
    """Lookup of content by MD5. Works without a DVC repository, but then only the working tree is
    searched.
    """

    def find(self, path: str, md5: str) -> StoredContent:
        """Return the content that had this MD5 at this path. It is `intact` unless it is missing or
        damaged, or the next run could replace the only copy.
        """
        file = Path(path)
        content = file.read_bytes() if file.is_file() else None
        here = None if content is None else digest_of(content)
        if here not in (None, md5) and self.recorded(path) == md5:
            where = f"the MD5 of the file in the working tree is {here}, not what DVC recorded"
            return StoredContent(None, where, False)
        kept, place = self._kept(md5)
        if kept is not None and (found := digest_of(kept)) != md5:
            return StoredContent(None, f"the copy in {place} is damaged: its MD5 is {found}", False)
        if kept is not None:
            return StoredContent(kept, f"in {place}", True)
        if here == md5:
            only = "only in the working tree, where the next run replaces it; `dvc commit` keeps it"
            return StoredContent(content, only, False)
        lost = "neither in the working tree nor in DVC's cache or remote"
        return StoredContent(None, lost, False)

    def recorded(self, path: str | Path) -> str | None:
        """Return the MD5 that DVC recorded for a file: "" if dvc.lock lacks it, and None if DVC
        doesn't track the file.
        """
        return self._tracked.get(str(Path(path).resolve()))

    @cached_property
    def _repo(self) -> Any:
        try:
            return Repo()
        except NotDvcRepoError:
            return None

    @cached_property
    def _tracked(self) -> dict[str, str]:
        """Return absolute path -> MD5 of the outputs that DVC tracks, including files in folders;
        the MD5 is "" if DVC has not recorded it. Raises DataError if DVC can't read its records.
        """
        found: dict[str, str] = {}
        try:
            outs = self._repo.index.outs if self._repo else []
        except DvcException as error:
            raise DataError(f"DVC can't read its own records: {first_line(error)}") from None
        for out in outs:
            found[out.fs_path] = out.hash_info.value or "" if out.hash_info else ""
            if out.hash_info and out.hash_info.isdir and (tree := out.get_obj()) is not None:
                for parts, _, hashed in tree:
                    found[str(Path(out.fs_path, *parts))] = hashed.value
        return found

    def _kept(self, md5: str) -> tuple[bytes | None, str]:
        """Return the content from DVC's cache or its default remote, and the name of that place;
        None and "" if neither has the content.
        """
        if self._repo is None:
            return None, ""
        cache = self._repo.cache.local
        if cache.exists(md5):
            return bytes(cache.fs.cat_file(cache.oid_to_path(md5))), "DVC's cache"
        with suppress(DvcException, OSError):
            remote = self._repo.cloud.get_remote_odb()
            if remote.exists(md5):
                return bytes(remote.fs.cat_file(remote.oid_to_path(md5))), "the DVC remote"
        return None, ""


def table_of(content: bytes) -> pd.DataFrame:
    """Return a Parquet file's table from the file's content."""
    return arrow_table(content).to_pandas(use_threads=False)


def arrow_table(content: bytes) -> Any:
    """Return a Parquet file's Arrow table from the file's content.

    It is read without threads: a thread of Arrow that still held the content when the process ends
    would abort the process.
    """
    import pyarrow as pa  # later than DVC, which names the extra that a plain installation lacks
    import pyarrow.parquet as pq

    return pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)

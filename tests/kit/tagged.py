"""The run under FUSION_TEST_CLUSTER=1: the server of the tests is a cluster, and the default prefix has a hash tag.

Keys that tests write out, like `rq:queue:sms`, get the tag when their module is imported: their texts are changed in the syntax tree. This
module is imported before all others of Fusion and of the tests.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType
from typing import Any

from fusion.kernel import defaults

CLUSTERED = os.environ.get("FUSION_TEST_CLUSTER", "") not in ("", "0")
_TEXT = re.compile(r"(?<![A-Za-z0-9_{])rq:(?![{/])")
_BYTES = re.compile(rb"(?<![A-Za-z0-9_{])rq:(?![{/])")
_ROOMS = ("tests.", "benchmarks.instructions.")

#: Tests that can't run on a cluster, and why.
ELSEWHERE = {
    "test_a_connection_keeps_its_broker_and_takes_it_along": "another prefix of its own, without a hash tag",
    "test_any_prefix": "prefixes without a hash tag",
    "test_jobs_are_read_by_any_client": "redis-py's own client, which knows no url of a cluster",
    "test_no_read_takes_a_whole_set": "counts the commands of a connection, and one to a cluster begins with CLUSTER",
    "test_the_worker_of_a_running_job_is_told_which_execution_to_end": "a subscriber of PUBLISH; tests/store/test_cluster.py has it for SPUBLISH",
}


class _Tagging(ast.NodeTransformer):
    """Puts the hash tag into each text that names a key."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            node.value = _TEXT.sub(defaults.CLUSTER_PREFIX, node.value)
        elif isinstance(node.value, bytes):
            node.value = _BYTES.sub(defaults.CLUSTER_PREFIX.encode(), node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Double the braces in a text whose method `format` is called."""
        self.generic_visit(node)
        of = node.func
        if isinstance(of, ast.Attribute) and of.attr == "format" and isinstance(of.value, ast.Constant):
            tag = f"{{{defaults.CLUSTER_TAG}}}"
            of.value.value = str(of.value.value).replace(tag, f"{{{tag}}}")
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module with tagged keys. It keeps no bytecode: other runs would read it."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        tree = _Tagging().visit(ast.parse(source, path))
        if fullname.rpartition(".")[2].startswith("test_"):
            from _pytest.assertion.rewrite import rewrite_asserts

            rewrite_asserts(tree, source, path)
        return compile(tree, path, "exec", dont_inherit=True)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        if not name.startswith(_ROOMS) or name == __name__:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is None or found.origin is None or not isinstance(found.loader, importlib.machinery.SourceFileLoader):
            return found
        return importlib.util.spec_from_file_location(
            name, found.origin, loader=_Loader(name, found.origin), submodule_search_locations=found.submodule_search_locations
        )


if CLUSTERED and defaults.KEY_PREFIX != defaults.CLUSTER_PREFIX:
    defaults.KEY_PREFIX = defaults.CLUSTER_PREFIX
    sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]

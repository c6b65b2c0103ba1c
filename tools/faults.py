"""List the faults that can be planted in a source: changes of one line that still compile.

Comparisons turned, signs, off by one, other constants, conditions removed, arguments dropped; in
bodies of functions, and not in messages, types or what is executed on import.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
SIGNS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
}
#: Operands of strings, lists and paths: another operator is no fault that passes unnoticed.
_NO_NUMBER = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
_PATHS = re.compile(r"path|folder|root|parent|file|directory|\bout\b", re.IGNORECASE)
#: Calls that print or wait, and arguments without which a program does the same.
_UNFELT_CALLS = {"say", "warn", "warning", "note", "print", "debug", "info", "option", "cast"}
_UNFELT_CALLS |= {"add_task", "advance", "sleep"}
_UNFELT_ARGUMENTS = {"stacklevel", "maxsize", "strict", "encoding", "buffering", "bufsize"}
_UNFELT_ARGUMENTS |= {"timeout", "flush", "daemon", "non_blocking", "pin_memory", "description"}
_UNFELT_ARGUMENTS |= {"transient", "style", "markup", "soft_wrap", "highlight"}
#: Calls that fail at once without their last argument.
_ALL_NEEDED = {"isinstance", "issubclass", "hasattr", "setattr", "replace"}


@dataclass(frozen=True)
class Fault:
    """A change of one line: its bytes from `start` to `end` are to be `text`."""

    kind: str
    path: str
    where: str  # the function, with those around it
    line: int
    old: str  # the whole line
    start: int
    end: int
    text: str

    @property
    def new(self) -> str:
        """The whole line with the fault."""
        line = self.old.encode()
        return (line[: self.start] + self.text.encode() + line[self.end :]).decode()

    @property
    def name(self) -> str:
        """What the fault is known by in the results, wherever its line has moved."""
        return "\n".join((self.path, self.where, self.old, self.new))


class _Finder(ast.NodeVisitor):
    """Collects the faults of one file. What is executed on import, messages and types have none."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._lines = [line.encode() for line in source.split("\n")]
        self._around: list[str] = []
        self._functions = 0
        self.faults: list[Fault] = []

    def _add(self, kind: str, line: int, start: int, end: int, text: str) -> None:
        if self._functions:
            where, old = ".".join(self._around), self._lines[line - 1].decode()
            self.faults.append(Fault(kind, self._path, where, line, old, start, end, text))

    def _replace(self, kind: str, node: ast.expr, *texts: str) -> None:
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            for text in texts:
                self._add(kind, node.lineno, node.col_offset, node.end_col_offset, text)

    def _between(self, kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Replace the operator between two operands, brackets aside."""
        if left.end_lineno == right.lineno and left.end_col_offset is not None:
            gap = self._lines[right.lineno - 1][left.end_col_offset : right.col_offset].decode()
            if old in gap:
                start = left.end_col_offset + gap.index(old)
                self._add(kind, right.lineno, start, start + len(old), new)

    def _source(self, node: ast.expr) -> str:
        return self._lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name == "__repr__":
            return
        self._around.append(node.name)
        self._functions += 1
        for statement in node.body:
            self.visit(statement)
        self._functions -= 1
        self._around.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._around.append(node.name)
        functions, self._functions = self._functions, 0
        for statement in node.body:
            self.visit(statement)
        self._functions = functions
        self._around.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def _pass_over(self, node: ast.AST) -> None:
        pass

    visit_Raise = visit_Assert = visit_JoinedStr = _pass_over

    def _condition(self, test: ast.expr, *texts: str) -> None:
        names_something = any(isinstance(node, ast.NamedExpr) for node in ast.walk(test))
        if not isinstance(test, ast.Constant) and not names_something:
            self._replace("condition removed", test, *texts)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for statement in node.orelse:
                self.visit(statement)
            return
        self._condition(node.test, "True", "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test, "True", "False")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test, "False")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._condition(test, "True", "False")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("condition removed", left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        start = node.col_offset
        if node.lineno == node.operand.lineno:
            if isinstance(node.op, ast.Not):
                self._add("condition removed", node.lineno, start, start + len("not "), "")
            elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
                self._add("sign", node.lineno, start, start + len("-"), "")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._between("comparison turned", left, right, *COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def _sign(self, left: ast.expr, operator: ast.operator, right: ast.expr) -> None:
        operands = (left, right)
        if type(operator) not in SIGNS or any(isinstance(each, _NO_NUMBER) for each in operands):
            return
        if any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in operands):
            return
        if isinstance(operator, ast.Div) and any(_PATHS.search(ast.unparse(o)) for o in operands):
            return
        self._between("sign", left, right, *SIGNS[type(operator)])

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._sign(node.left, node.op, node.right)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._sign(node.target, node.op, node.value)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace("constant", node, str(not value))
        elif isinstance(value, int) and value < 100:
            self._replace("off by one", node, str(value + 1), *([str(value - 1)] if value else []))
        elif isinstance(value, int):
            self._replace("constant", node, str(value // 2))
        elif isinstance(value, float) and (value == 0 or 1e-6 <= value <= 1e6):
            self._replace("constant", node, str(value * 2 if value else 1.0))

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            self._bound(bound)
        self.generic_visit(node)

    def _bound(self, node: ast.expr | None) -> None:
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            text = self._source(node)
            self._replace("off by one", node, f"{text} + 1", f"{text} - 1")

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in _UNFELT_CALLS or name.endswith("Error"):
            return
        if name == "range":
            self._bound(node.args[-1] if node.args else None)
        self.visit(node.func)
        for argument in node.args[:1] if name == "round" else node.args:
            self.visit(argument)
        if len(node.args) > 1 and name not in _ALL_NEEDED:
            self._drop(node.args[-1])
        for keyword in node.keywords:
            if keyword.arg not in _UNFELT_ARGUMENTS:
                self.visit(keyword.value)
                if keyword.arg is not None:
                    self._drop(keyword)

    def _drop(self, node: ast.expr | ast.keyword) -> None:
        """Drop an argument, with the comma after it, or else the one before it."""
        if node.lineno != node.end_lineno or node.end_col_offset is None:
            return
        line, start, end = self._lines[node.lineno - 1], node.col_offset, node.end_col_offset
        if after := re.match(rb",\s*", line[end:]):
            end += after.end()
        elif before := re.search(rb",\s*$", line[:start]):
            start = before.start()
        self._add("argument dropped", node.lineno, start, end, "")


def faults_of(path: str, source: str) -> list[Fault]:
    """List the faults that can be planted in the file `path` with this source."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.faults


def planted(source: str, fault: Fault) -> str | None:
    """Return the source with the fault; ``None`` where it means the same or does not compile."""
    lines = source.split("\n")
    lines[fault.line - 1] = fault.new
    changed = "\n".join(lines)
    try:
        compile(changed, fault.path, "exec")
    except SyntaxError:
        return None
    return None if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source)) else changed


def shuffled(faults: list[Fault], seed: int) -> list[Fault]:
    """Order faults by chance, the kinds in turn. A fault's place among those of its kind hangs on
    the seed and on its own line, so that a change of other files moves few of the first hundred."""
    by_kind: dict[str, list[tuple[str, Fault]]] = defaultdict(list)
    for fault in {fault.name: fault for fault in faults}.values():
        by_kind[fault.kind].append(
            (hashlib.sha256(f"{seed} {fault.name}".encode()).hexdigest(), fault)
        )
    turns = [
        (turn, kind, fault)
        for kind, ranked in by_kind.items()
        for turn, (_, fault) in enumerate(sorted(ranked, key=lambda each: each[0]))
    ]
    return [fault for _, _, fault in sorted(turns, key=lambda each: each[:2])]

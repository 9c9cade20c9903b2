"""What the names in a piece of Lua 5.1 stand for: as much of a parser as that needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"--[^\n]*|\s+|(?P<name>[A-Za-z_]\w*)|(?P<number>0x[\da-fA-F]+|\d+\.?\d*(?:e[+-]?\d+)?)"
    r"|(?P<string>'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")|(?P<sign>\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^#<>=(){}\[\];:,.])"
)
_KEYWORDS = frozenset(
    "and break do else elseif end false for function if in local nil not or repeat return then true until while".split()
)
_OPERATORS = frozenset("+ - * / % ^ .. == ~= < <= > >= and or".split())


@dataclass(eq=False)
class Local:
    """A local variable. `line`: of its definition; `changed`: something is assigned to it, or to an entry of it, later."""

    name: str
    line: int
    function: bool = False
    changed: bool = False


@dataclass(eq=False)
class _Function:
    """A function that is being read: its open blocks, the most locals that were alive at once, and what it takes from outside."""

    blocks: list[dict[str, Local]] = field(default_factory=list)
    alive: int = 0
    most: int = 0
    upvalues: set[Local] = field(default_factory=set)


class Scope:
    """What the names of a chunk of Lua 5.1 stand for. Raises SyntaxError for what is no Lua."""

    def __init__(self, text: str) -> None:
        self.free: list[tuple[str, int]] = []
        self.uses: list[tuple[Local, int]] = []
        self.globals_set: list[tuple[str, int]] = []
        self.most_upvalues = 0
        self._tokens = list(_tokens(text))
        self._at = 0
        main = _Function()
        self._functions = [main]
        self.top = self._block(keep=True)
        if self._peek():
            raise SyntaxError(f"line {self._line()}: {self._peek()!r} is not expected")
        self.most_locals = main.most
        self._tokens.clear()

    # -- tokens

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at][1] if at < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _line(self) -> int:
        return self._tokens[min(self._at, len(self._tokens) - 1)][2] if self._tokens else 0

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _take(self, word: str) -> bool:
        if self._peek() == word and self._kind() != "string":
            self._at += 1
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise SyntaxError(f"line {self._line()}: {word!r} expected, not {self._peek()!r}")

    def _name(self) -> str:
        if self._kind() != "name":
            raise SyntaxError(f"line {self._line()}: a name expected, not {self._peek()!r}")
        return self._next()

    # -- names

    def _define(self, names: list[str], line: int, *, function: bool = False) -> None:
        own = self._functions[-1]
        for name in names:
            if len(self._functions) == 1 and len(own.blocks) == 1 and name in own.blocks[0]:
                raise SyntaxError(f"line {line}: {name} is defined at the top twice")
            own.blocks[-1][name] = Local(name, line, function)
        own.alive += len(names)
        own.most = max(own.most, own.alive)

    def _refer(self, name: str, line: int) -> Local | None:
        for depth in range(len(self._functions) - 1, -1, -1):
            for block in reversed(self._functions[depth].blocks):
                if name in block:
                    for function in self._functions[depth + 1 :]:
                        function.upvalues.add(block[name])
                    self.uses.append((block[name], line))
                    return block[name]
        self.free.append((name, line))
        return None

    # -- statements

    def _block(self, names: list[str] | None = None, *, keep: bool = False) -> dict[str, Local]:
        own = self._functions[-1]
        own.blocks.append({})
        before = own.alive
        self._define(names or [], self._line())
        while self._peek() not in ("", "end", "else", "elseif", "until"):
            self._statement()
        block = own.blocks[-1]
        if not keep and self._peek() != "until":
            own.blocks.pop()
            own.alive = before
        return block

    def _statement(self) -> None:
        line = self._line()
        if self._take(";") or self._take("break"):
            return
        if self._take("local"):
            self._local(line)
        elif self._take("if"):
            self._expression()
            self._expect("then")
            self._block()
            while self._take("elseif"):
                self._expression()
                self._expect("then")
                self._block()
            if self._take("else"):
                self._block()
            self._expect("end")
        elif self._take("while"):
            self._expression()
            self._expect("do")
            self._block()
            self._expect("end")
        elif self._take("for"):
            self._for()
        elif self._take("repeat"):
            own, before = self._functions[-1], self._functions[-1].alive
            self._block()
            self._expect("until")
            self._expression()
            own.blocks.pop()
            own.alive = before
        elif self._take("do"):
            self._block()
            self._expect("end")
        elif self._take("return"):
            if self._peek() not in ("", "end", "else", "elseif", "until", ";"):
                self._expressions()
        else:
            self._assignment_or_call()

    def _local(self, line: int) -> None:
        if self._take("function"):
            self._define([self._name()], line, function=True)
            self._function()
            return
        names = [self._name()]
        while self._take(","):
            names.append(self._name())
        function = False
        if self._take("="):
            function = self._peek() == "function"
            self._expressions()
        self._define(names, line, function=function)

    def _for(self) -> None:
        names = [self._name()]
        while self._take(","):
            names.append(self._name())
        if not self._take("="):
            self._expect("in")
        self._expressions()
        self._expect("do")
        own = self._functions[-1]
        own.alive += 3  # Lua keeps the loop's state in locals, too
        self._block(names)
        own.alive -= 3
        self._expect("end")

    def _assignment_or_call(self) -> None:
        targets = [self._suffixed()]
        while self._take(","):
            targets.append(self._suffixed())
        if self._take("="):
            self._expressions()
            for target in targets:
                if isinstance(target, Local):
                    target.changed = True
                elif isinstance(target, str):
                    self.globals_set.append((target, self._line()))

    # -- expressions

    def _expressions(self) -> None:
        self._expression()
        while self._take(","):
            self._expression()

    def _expression(self) -> None:
        while self._take("not") or self._take("-") or self._take("#"):
            pass
        self._simple()
        while self._peek() in _OPERATORS and self._kind() != "string":
            self._next()
            while self._take("not") or self._take("-") or self._take("#"):
                pass
            self._simple()

    def _simple(self) -> None:
        if self._kind() in ("string", "number") or self._peek() in ("nil", "true", "false", "..."):
            self._next()
        elif self._take("function"):
            self._function()
        elif self._peek() == "{":
            self._table()
        else:
            self._suffixed()

    def _table(self) -> None:
        self._expect("{")
        while not self._take("}"):
            if self._take("["):
                self._expression()
                self._expect("]")
                self._expect("=")
            elif self._kind() == "name" and self._peek(1) == "=":
                self._next()
                self._expect("=")
            self._expression()
            if not (self._take(",") or self._take(";")) and self._peek() != "}":
                raise SyntaxError(f"line {self._line()}: '}}' expected, not {self._peek()!r}")

    def _suffixed(self) -> Local | str | None:
        """The local, or the name of a global, to which an assignment to this would be one."""
        line = self._line()
        root: Local | str | None = None
        if self._take("("):
            self._expression()
            self._expect(")")
        else:
            name = self._name()
            root = self._refer(name, line) or name
        while True:
            if self._take("."):
                self._name()
            elif self._take("["):
                self._expression()
                self._expect("]")
            elif self._take(":"):
                self._name()
                self._arguments()
            elif self._peek() in ("(", "{") or self._kind() == "string":
                if root == "table":  # table.insert(x, ...) changes x
                    self._changes(self._peek(1))
                self._arguments()
                root = None
            else:
                return root

    def _changes(self, name: str) -> None:
        found = self._refer(name, self._line()) if re.fullmatch(r"[A-Za-z_]\w*", name) else None
        if found:
            found.changed = True

    def _arguments(self) -> None:
        if self._kind() == "string":
            self._next()
        elif self._peek() == "{":
            self._table()
        else:
            self._expect("(")
            if not self._take(")"):
                self._expressions()
                self._expect(")")

    def _function(self) -> None:
        self._expect("(")
        names = []
        while not self._take(")"):
            if not self._take("..."):
                names.append(self._name())
            self._take(",")
        self._functions.append(_Function())
        self._block(names)
        done = self._functions.pop()
        self._expect("end")
        self.most_upvalues = max(self.most_upvalues, len(done.upvalues))


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    at = line = 0
    line = 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SyntaxError(f"line {line}: {text[at : at + 20]!r} is no Lua")
        kind = match.lastgroup
        if kind:
            word = match[0]
            yield ("sign" if word in _KEYWORDS else kind), word, line
        line += match[0].count("\n")
        at = match.end()

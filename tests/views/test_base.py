"""Views: what a class may declare, and the JSON and the schema that follow from it."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timezone
from typing import Any, Literal

import pytest

from fusion.views.base import (
    ABSENT,
    EVERYONE,
    NOBODY,
    Unmasked,
    View,
    definition,
    details,
    masked,
    part,
    public,
    schema,
    stored,
    to_json,
    view,
    within,
)

NOON = datetime(2030, 1, 31, 12, tzinfo=timezone.utc)


def starred(value: str) -> str:
    return "*" * len(value)


@part
class ErrorView(View):
    kind: str = public("Its class.", name="class")
    text: str = details("What it said.", how=starred)


@view
class ParcelView(View):
    id: str = public("Its id.")
    state: Literal["here", "gone"] = public("Where it is.")
    sent_at: datetime | None = public("When it was sent.")
    weight: float = public("How heavy it is.", unit="grams")
    error: ErrorView | None = public("What was wrong.")
    owner: str = masked("Whose it is.", starred, unless=["admin"])
    key: str = stored("What opens it.")
    steps: list[ErrorView] = details("Its way.", scopes=["admin"])
    note: str = public("A note.", default=ABSENT)


@view
class LargeParcelView(ParcelView):
    floors: dict[str, int] = public("By floor.")


def parcel(**more: Any) -> dict[str, Any]:
    error = ErrorView(kind="E", text="secret")
    return {"id": "p", "state": "here", "sent_at": NOON, "weight": 1.5, "error": error, "owner": "mary", "key": "k9", **more}


def test_json_has_what_the_class_of_each_field_allows() -> None:
    shown = ParcelView(**parcel(steps=[ErrorView(kind="F", text="second")]))
    public_part = {"id": "p", "state": "here", "sent_at": "2030-01-31T12:00:00.000000Z", "weight": 1.5, "owner": "****"}
    assert to_json(shown) == {**public_part, "error": {"class": "E"}}
    assert to_json(shown, frozenset({"operate"})) == {**public_part, "error": {"class": "E", "text": "******"}}
    assert to_json(shown, frozenset({"admin"})) == {**public_part, "error": {"class": "E"}, "steps": [{"class": "F"}]}


def test_what_is_masked_is_gone_from_the_view_itself() -> None:
    assert ParcelView(**parcel()).owner == "****"
    assert ParcelView(**parcel(owner=None)).owner is None


def test_an_unmasked_text_is_shown_to_the_scopes_of_its_field_alone() -> None:
    shown = ParcelView(**parcel(owner=Unmasked("mary")))
    assert to_json(shown)["owner"] == to_json(shown, frozenset({"operate"}))["owner"] == "****"
    assert to_json(shown, EVERYONE)["owner"] == "mary"
    assert type(to_json(shown, EVERYONE)["owner"]) is str


def test_a_stored_field_is_never_shown() -> None:
    assert "k9" not in str(to_json(ParcelView(**parcel()), EVERYONE))
    assert "key" not in definition(ParcelView)["properties"]


def test_a_field_that_is_absent_is_left_out() -> None:
    assert "note" not in to_json(ParcelView(**parcel())) and to_json(ParcelView(**parcel(note="n")))["note"] == "n"
    assert ParcelView(**parcel()).note is ABSENT


def test_a_view_of_another_has_its_fields_too() -> None:
    shown = to_json(LargeParcelView(**parcel(), floors={"1": 2}), NOBODY)
    assert shown["floors"] == {"1": 2} and shown["id"] == "p" and shown["owner"] == "****"


def test_the_schema_follows_from_the_fields() -> None:
    made = definition(ParcelView)
    assert made["required"] == ["error", "id", "owner", "sent_at", "state", "weight"]
    assert made["additionalProperties"] is False
    assert made["properties"]["state"] == {"type": "string", "enum": ["here", "gone"], "description": "Where it is."}
    assert made["properties"]["sent_at"]["type"] == ["string", "null"] and made["properties"]["sent_at"]["format"] == "date-time"
    assert made["properties"]["weight"]["description"] == "How heavy it is. In grams."
    assert made["properties"]["steps"]["description"] == "Its way. Only for admin."
    assert made["properties"]["error"]["properties"]["class"]["type"] == "string"
    assert definition(LargeParcelView)["properties"]["floors"]["additionalProperties"] == {"type": "integer"}
    assert schema(list[ParcelView]) == {"type": "array", "items": {"$ref": "#/components/schemas/Parcel"}}
    assert schema(ParcelView | LargeParcelView)["anyOf"][1] == {"$ref": "#/components/schemas/LargeParcel"}
    assert [one.SCHEMA for one in within(list[LargeParcelView])] == ["LargeParcel"]


@pytest.mark.parametrize("declared", [None, "text", 3])
def test_a_field_that_declares_nothing_does_not_build(declared: Any) -> None:
    body = {"__annotations__": {"id": "str"}, **({} if declared is None else {"id": declared})}
    with pytest.raises(TypeError, match=r"Bad\.id: declare what it holds"):
        view(type("Bad", (View,), {**body, "__module__": __name__}))


def test_a_meaning_is_a_sentence() -> None:
    with pytest.raises(TypeError, match="in a sentence"):
        public("its id")


def test_a_value_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes has no form in JSON"):
        to_json({"raw": b"x"})


def test_every_field_of_a_view_is_declared() -> None:
    assert [one.attribute for one in ParcelView.FIELDS] == [one.name for one in fields(ParcelView)]  # type: ignore[arg-type]

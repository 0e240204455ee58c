"""google.api.http options as routes."""

from __future__ import annotations

from typing import Any

import pytest

from api_calls import READERS
from broker.api.method import ApiMethod, Calls
from broker.api.pb import admin_pb2 as pb
from broker.api.route import Route


class Servicer:
    roles = READERS

    async def List(self, request: Any, context: Any) -> Any:
        raise AssertionError("called")


@pytest.mark.parametrize(
    ("template", "body", "words"),
    [
        ("/v1/{page}", "", "{page} of /v1/{page} is not a text field"),
        ("/v1/{nothing}", "", "{nothing} of"),
        ("/v1/{name=a/*}", "", "is neither a name nor a {field}"),
        ("/v1/**", "", "is neither a name"),
        ("/v1//a", "", "is neither a name"),
        ("/v1/a", "page", 'body "page" is not possible'),
    ],
)
def test_templates_that_are_not_understood_are_refused_at_once(template: str, body: str, words: str) -> None:
    method = pb.DESCRIPTOR.services_by_name["ClientService"].methods_by_name["List"]
    with pytest.raises(ValueError) as caught:
        Route(ApiMethod(method, Servicer(), Calls(), None), "GET", template, body)
    assert words in str(caught.value)

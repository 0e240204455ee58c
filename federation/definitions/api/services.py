"""ParameterService, PolicyService and DefinitionsService: definitions over gRPC and REST.

Values of parameters are JSON of any shape, so they travel as google.protobuf.Value.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Value

from broker.api.errors import ApiError, invalid_argument, not_found
from broker.api.server import ApiServer
from broker.api.tokens import Role
from broker.errors import MqttError
from broker.routing.names import SHARE_PREFIX, check_topic_filter, check_topic_name
from federation.definitions.definitions import Definitions
from federation.definitions.entry import PARAMETERS, POLICY, WORDS
from federation.definitions.error import DefinitionError, shown
from federation.definitions.pb import definitions_pb2 as pb
from federation.definitions.pb.definitions_pb2_grpc import (
    DefinitionsServiceServicer,
    ParameterServiceServicer,
    PolicyServiceServicer,
)
from federation.definitions.policy import apply_to_of

if TYPE_CHECKING:
    from federation.definitions.shell.service import DefinitionsService


VHOST: Final = "/"  # of RabbitMQ's bodies and paths


def register(api: ApiServer, service: DefinitionsService) -> None:
    """Serve the definitions of a node."""
    services = pb.DESCRIPTOR.services_by_name
    api.register(services["ParameterService"], Parameters(service))
    api.register(services["PolicyService"], Policies(service))
    api.register(services["DefinitionsService"], AllDefinitions(service))


class Parameters(ParameterServiceServicer):
    # Upstreams have credentials, name files of the node, and let it connect anywhere.
    roles: Final = {"List": Role.READ, "Get": Role.READ, "Set": Role.ADMIN, "Clear": Role.ADMIN}

    def __init__(self, service: DefinitionsService) -> None:
        self._service = service

    async def List(self, request: pb.ListParametersRequest, context: object) -> pb.ListParametersResponse:
        if request.component:
            _check_component(request.component)
        found = self._service.definitions
        return pb.ListParametersResponse(
            parameters=[
                _parameter(found, component, name)
                for component in PARAMETERS
                if request.component in ("", component)
                for name in found.names(component)
            ],
            warnings=[f"{what}: {text}" for what, text in self._service.warnings()],
        )

    async def Get(self, request: pb.ParameterKey, context: object) -> pb.Parameter:
        _check_component(request.component)
        _check_vhost(request)
        if self._service.definitions.get(request.component, request.name) is None:
            raise _missing(request.component, request.name)
        return _parameter(self._service.definitions, request.component, request.name)

    async def Set(self, request: pb.Parameter, context: object) -> pb.Written:
        component, name, value = _parameter_item(request)
        try:
            return pb.Written(warnings=await self._service.put(component, name, value))
        except DefinitionError as error:
            raise _refused("value", error) from None

    async def Clear(self, request: pb.ParameterKey, context: object) -> Empty:
        _check_component(request.component)
        _check_vhost(request)
        await _delete(self._service, request.component, request.name)
        return Empty()


class Policies(PolicyServiceServicer):
    roles: Final = {
        "List": Role.READ,
        "Get": Role.READ,
        "Set": Role.WRITE,
        "Clear": Role.WRITE,
        "Explain": Role.READ,
    }

    def __init__(self, service: DefinitionsService) -> None:
        self._service = service

    async def List(self, request: Empty, context: object) -> pb.ListPoliciesResponse:
        found = self._service.definitions
        return pb.ListPoliciesResponse(policies=[_policy(found, policy.name) for policy in found.resolution().policies])

    async def Get(self, request: pb.PolicyKey, context: object) -> pb.Policy:
        _check_vhost(request)
        if self._service.definitions.get(POLICY, request.name) is None:
            raise _missing(POLICY, request.name)
        return _policy(self._service.definitions, request.name)

    async def Set(self, request: pb.Policy, context: object) -> pb.Written:
        component, name, value = _policy_item(request)
        try:
            return pb.Written(warnings=await self._service.put(component, name, value))
        except DefinitionError as error:
            raise _refused("", error) from None

    async def Clear(self, request: pb.PolicyKey, context: object) -> Empty:
        _check_vhost(request)
        await _delete(self._service, POLICY, request.name)
        return Empty()

    async def Explain(self, request: pb.ExplainRequest, context: object) -> pb.Explanation:
        topic = request.topic.encode()
        try:
            if topic.startswith(SHARE_PREFIX):
                check_topic_filter(topic)
            else:
                check_topic_name(topic)
        except MqttError as error:
            raise invalid_argument(f"topic: {error.text}") from None
        found = self._service.resolution().explain(topic)
        return pb.Explanation(
            topic=request.topic,
            policies=[
                pb.PolicyMatch(
                    name=match.policy.name,
                    pattern=match.policy.pattern,
                    priority=match.policy.priority,
                    applies=match.applies,
                    reason=match.reason,
                )
                for match in found.matches
            ],
            links=[
                pb.ExplainedLink(
                    id=link.link_id,
                    upstream=link.upstream.name,
                    uris=[uri.redacted() for uri in link.upstream.uris],
                )
                for link in found.links
            ],
            missing=found.missing,
        )


class AllDefinitions(DefinitionsServiceServicer):
    roles: Final = {"Export": Role.ADMIN, "Import": Role.ADMIN}

    def __init__(self, service: DefinitionsService) -> None:
        self._service = service

    async def Export(self, request: Empty, context: object) -> pb.AllDefinitions:
        found = self._service.definitions
        parameters = [
            pb.Parameter(component=component, name=name, value=_as_value(found.get(component, name)))
            for component in PARAMETERS
            for name in found.names(component)
            if (component, name) not in found.declared
        ]
        policies = [_policy(found, name) for name in found.names(POLICY) if (POLICY, name) not in found.declared]
        return pb.AllDefinitions(parameters=parameters, policies=policies)

    async def Import(self, request: pb.AllDefinitions, context: object) -> pb.Written:
        items = [_parameter_item(parameter) for parameter in request.parameters]
        items += [_policy_item(policy) for policy in request.policies]
        try:
            return pb.Written(warnings=await self._service.put_all(items))
        except DefinitionError as error:
            raise _refused("", error) from None


def _check_component(component: str) -> None:
    if component not in PARAMETERS:
        raise not_found(f'component: "{component[:64]}" is not one of {", ".join(PARAMETERS)}')


def _check_vhost(request: pb.Parameter | pb.ParameterKey | pb.Policy | pb.PolicyKey) -> None:
    if request.vhost not in ("", VHOST):
        hint = "a prefix of topics takes the place of others (exchange of an upstream)"
        raise invalid_argument(f"vhost: {shown(request.vhost)} is not {VHOST}, the only one; {hint}")


def _parameter(found: Definitions, component: str, name: str) -> pb.Parameter:
    return pb.Parameter(
        component=component,
        name=name,
        value=_as_value(found.read(component, name)),
        read_only=(component, name) in found.declared,
    )


def _policy(found: Definitions, name: str) -> pb.Policy:
    """A policy of a newer node may have keys that this one does not know."""
    value: Any = found.get(POLICY, name)
    policy = pb.Policy(name=name, read_only=(POLICY, name) in found.declared)
    with suppress(json_format.ParseError):
        json_format.ParseDict(value, policy, ignore_unknown_fields=True)
    policy.apply_to = policy.apply_to or apply_to_of(policy.pattern).value
    return policy


def _parameter_item(request: pb.Parameter) -> tuple[str, str, object]:
    _check_component(request.component)
    _check_vhost(request)
    value = json_format.MessageToDict(request.value) if request.HasField("value") else None
    return request.component, request.name, value


def _policy_item(request: pb.Policy) -> tuple[str, str, object]:
    _check_vhost(request)
    value: dict[str, Any] = {
        "pattern": request.pattern or None,
        "apply-to": request.apply_to or apply_to_of(request.pattern).value,
        "priority": request.priority,
        "definition": json_format.MessageToDict(request.definition) if request.HasField("definition") else None,
    }
    return POLICY, request.name, {key: inner for key, inner in value.items() if inner is not None}


def _as_value(value: Any) -> Value:
    found = Value()
    json_format.ParseDict(value, found)
    return found


async def _delete(service: DefinitionsService, component: str, name: str) -> None:
    try:
        is_deleted = await service.delete(component, name)
    except DefinitionError as error:
        raise _refused("", error) from None
    if not is_deleted:
        raise _missing(component, name)


def _missing(component: str, name: str) -> ApiError:
    return not_found(f'there is no {WORDS[component]} "{name[:128]}"')


def _refused(prefix: str, error: DefinitionError) -> ApiError:
    """The key of a value stands below `value` in the body, that of the name does not."""
    return invalid_argument(str(error.below(prefix) if prefix and error.key != "name" else error))

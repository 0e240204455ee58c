"""ParameterService, PolicyService and DefinitionsService: definitions over gRPC and REST.

Values of parameters are JSON of any shape, so they travel as google.protobuf.Value.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import invalid_argument, not_found
from broker.api.server import ApiServer
from broker.api.tokens import Role
from broker.errors import MqttError
from broker.routing.names import SHARE_PREFIX, check_topic_filter, check_topic_name
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


class _Served:
    """The definitions of a node, as all three services read and write them."""

    def __init__(self, service: DefinitionsService) -> None:
        self._service = service
        self._definitions = service.definitions

    def _check_there(self, component: str, request: pb.ParameterKey | pb.PolicyKey) -> None:
        _check_vhost(request)
        if self._definitions.get(component, request.name) is None:
            raise not_found(f'there is no {WORDS[component]} "{request.name[:128]}"')

    def _parameter(self, component: str, name: str, value: Any) -> pb.Parameter:
        is_declared = (component, name) in self._definitions.declared
        found = pb.Parameter(component=component, name=name, read_only=is_declared)
        json_format.ParseDict(value, found.value)
        return found

    def _policy(self, name: str) -> pb.Policy:
        """A policy of a newer node may have keys that this one does not know."""
        value: Any = self._definitions.get(POLICY, name)
        policy = pb.Policy(name=name, read_only=(POLICY, name) in self._definitions.declared)
        with suppress(json_format.ParseError):
            json_format.ParseDict(value, policy, ignore_unknown_fields=True)
        policy.apply_to = policy.apply_to or apply_to_of(policy.pattern).value
        return policy

    async def _put(self, prefix: str, component: str, name: str, value: object) -> pb.Written:
        """Store a definition, whose value stands at `prefix` of the body; the name does not."""
        try:
            return pb.Written(warnings=await self._service.put(component, name, value))
        except DefinitionError as error:
            raise invalid_argument(str(error.below(prefix) if prefix and error.key != "name" else error)) from None

    async def _delete(self, component: str, request: pb.ParameterKey | pb.PolicyKey) -> Empty:
        _check_vhost(request)
        try:
            is_deleted = await self._service.delete(component, request.name)
        except DefinitionError as error:
            raise invalid_argument(str(error)) from None
        if not is_deleted:
            raise not_found(f'there is no {WORDS[component]} "{request.name[:128]}"')
        return Empty()


class Parameters(_Served, ParameterServiceServicer):
    # Upstreams have credentials, name files of the node, and let it connect anywhere.
    roles: Final = {"List": Role.READ, "Get": Role.READ, "Set": Role.ADMIN, "Clear": Role.ADMIN}

    async def List(self, request: pb.ListParametersRequest, context: object) -> pb.ListParametersResponse:
        if request.component:
            _check_component(request.component)
        found = self._definitions
        return pb.ListParametersResponse(
            parameters=[
                self._parameter(component, name, found.read(component, name))
                for component in PARAMETERS
                if request.component in ("", component)
                for name in found.names(component)
            ],
            warnings=[f"{what}: {text}" for what, text in self._service.warnings()],
        )

    async def Get(self, request: pb.ParameterKey, context: object) -> pb.Parameter:
        component, name = request.component, request.name
        _check_component(component)
        self._check_there(component, request)
        return self._parameter(component, name, self._definitions.read(component, name))

    async def Set(self, request: pb.Parameter, context: object) -> pb.Written:
        return await self._put("value", *_parameter_item(request))

    async def Clear(self, request: pb.ParameterKey, context: object) -> Empty:
        _check_component(request.component)
        return await self._delete(request.component, request)


class Policies(_Served, PolicyServiceServicer):
    roles: Final = {
        "List": Role.READ,
        "Get": Role.READ,
        "Set": Role.WRITE,
        "Clear": Role.WRITE,
        "Explain": Role.READ,
    }

    async def List(self, request: Empty, context: object) -> pb.ListPoliciesResponse:
        found = self._definitions.resolution().policies
        return pb.ListPoliciesResponse(policies=[self._policy(policy.name) for policy in found])

    async def Get(self, request: pb.PolicyKey, context: object) -> pb.Policy:
        self._check_there(POLICY, request)
        return self._policy(request.name)

    async def Set(self, request: pb.Policy, context: object) -> pb.Written:
        return await self._put("", *_policy_item(request))

    async def Clear(self, request: pb.PolicyKey, context: object) -> Empty:
        return await self._delete(POLICY, request)

    async def Explain(self, request: pb.ExplainRequest, context: object) -> pb.Explanation:
        topic = request.topic.encode()
        try:
            if topic.startswith(SHARE_PREFIX):
                check_topic_filter(topic)
            else:
                check_topic_name(topic)
        except MqttError as error:
            raise invalid_argument(f"topic: {error.text}") from None
        return self._definitions.resolution().explain(topic)


class AllDefinitions(_Served, DefinitionsServiceServicer):
    roles: Final = {"Export": Role.ADMIN, "Import": Role.ADMIN}

    async def Export(self, request: Empty, context: object) -> pb.AllDefinitions:
        found = self._definitions
        parameters = [
            self._parameter(component, name, found.get(component, name))
            for component in PARAMETERS
            for name in found.names(component)
            if (component, name) not in found.declared
        ]
        policies = [self._policy(name) for name in found.names(POLICY) if (POLICY, name) not in found.declared]
        return pb.AllDefinitions(parameters=parameters, policies=policies)

    async def Import(self, request: pb.AllDefinitions, context: object) -> pb.Written:
        items = [_parameter_item(parameter) for parameter in request.parameters]
        items += [_policy_item(policy) for policy in request.policies]
        try:
            return pb.Written(warnings=await self._service.put_all(items))
        except DefinitionError as error:
            raise invalid_argument(str(error)) from None


def _check_component(component: str) -> None:
    if component not in PARAMETERS:
        raise not_found(f'component: "{component[:64]}" is not one of {", ".join(PARAMETERS)}')


def _check_vhost(request: pb.Parameter | pb.ParameterKey | pb.Policy | pb.PolicyKey) -> None:
    if request.vhost not in ("", VHOST):
        hint = "a prefix of topics takes the place of others (exchange of an upstream)"
        raise invalid_argument(f"vhost: {shown(request.vhost)} is not {VHOST}, the only one; {hint}")


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

"""AccountService gives the accounts of the plugin `auth` to the API."""

# not a core: a service over gRPC
from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError, invalid_argument, not_found
from broker.api.fields import page_bounds
from broker.api.merging import Merged
from broker.api.tokens import Role
from broker.auth.accounts import LINK, LINK_OF, link_domain_of, name_fault
from broker.auth.check_queue import NotChecked
from broker.auth.files import Accounts
from broker.auth.passwords import AccountFault, Passwords
from broker.auth.pb.account_pb2 import (
    Account,
    DeleteAccountRequest,
    GetAccountRequest,
    GetAccountResponse,
    ListAccountsRequest,
    ListAccountsResponse,
    UpdateAccountRequest,
)
from broker.auth.pb.account_pb2_grpc import AccountServiceServicer
from broker.config.yaml_entries import ENTRIES_MAX, EntriesFault

if TYPE_CHECKING:
    from broker.auth.settings import AuthSettings


class AccountService(AccountServiceServicer):
    roles: Final = {"List": Role.ADMIN, "Get": Role.ADMIN, "Update": Role.ADMIN, "Delete": Role.ADMIN}
    for_workers: Final = {
        "Update": Merged.at_each,
        "Delete": Merged.at_each,
    }

    def __init__(self, passwords: Passwords, settings: AuthSettings, log: Any) -> None:
        self._passwords = passwords
        self._settings = settings
        self._log = log

    async def List(self, request: ListAccountsRequest, context: object) -> ListAccountsResponse:
        accounts = self._passwords.accounts
        offset, count = page_bounds(request.page, request.page_size)
        names = islice(accounts, offset, offset + count)
        page = [Account(username=username, role=accounts[username].role) for username in names]
        return ListAccountsResponse(accounts=page, total_count=len(accounts))

    async def Get(self, request: GetAccountRequest, context: object) -> GetAccountResponse:
        username = checked_name(request.username)
        account = self._passwords.accounts.get(username)
        if account is None:
            raise not_found(f'there is no account "{username[:100]}"')
        return GetAccountResponse(account=Account(username=username, role=account.role))

    async def Update(self, request: UpdateAccountRequest, context: object) -> Empty:
        username = checked_name(request.username)
        accounts = self._passwords.accounts
        if username not in accounts and len(accounts) >= ENTRIES_MAX:
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"there are {ENTRIES_MAX} accounts already")
        settings = self._settings
        role = request.role if request.HasField("role") else None
        if role and link_domain_of(role) is None:
            raise invalid_argument(f'role: "{role[:100]}" is not "{LINK}", "{LINK_OF}DOMAIN" or empty')
        try:
            if role is not None and not request.password and username in accounts:
                await self._passwords.set_role(username, role)
            else:
                await self._passwords.add(username, request.password.encode(), settings.new_hash, settings.scram, role)
        except AccountFault as fault:
            raise invalid_argument(str(fault)) from None
        except NotChecked:
            raise ApiError(grpc.StatusCode.UNAVAILABLE, "too many passwords are being checked") from None
        except (EntriesFault, OSError) as error:
            self._not_written(error)
        self._log.info("account changed by the API", username=username)
        return Empty()

    async def Delete(self, request: DeleteAccountRequest, context: object) -> Empty:
        username = checked_name(request.username)

        def remove(accounts: Accounts) -> None:
            accounts.pop(username, None)

        if username in self._passwords.accounts:
            try:
                await self._passwords.change(remove)
            except (EntriesFault, OSError) as error:
                self._not_written(error)
            self._log.info("account deleted by the API", username=username)
        return Empty()

    def _not_written(self, error: EntriesFault | OSError) -> NoReturn:
        """The file cannot be changed. The answer does not name its path; the log does."""
        text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        self._log.error("the account file cannot be changed", file=self._passwords.file.path, reason=text)
        raise ApiError(grpc.StatusCode.INTERNAL, f"the account file cannot be changed: {text}") from error


def checked_name(username: str) -> str:
    """Return the user name of a request. Raises ApiError for one that no user may have."""
    fault = name_fault(username)
    if fault:
        raise invalid_argument(f"username: {fault}")
    return username

"""What samplers that are made of others have in common."""

from typing import Any

from softbench.common import Tensor
from softbench.samplers.base import Sampler


class Composite(Sampler):
    """A sampler that passes on to its `parts` what it is told of the class table."""

    @property
    def parts(self) -> tuple[Sampler, ...]:
        """The samplers that it is made of."""
        raise NotImplementedError

    @property
    def follows(self) -> bool:
        return bool(self._followers())

    def followed(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """As the only part that follows the table wants it; all rows for more than one."""
        followers = self._followers()
        return followers[0].followed(ids) if len(followers) == 1 else (ids, {})

    def rows_changed(
        self, table: Any, ids: Tensor, old_rows: Tensor, new_rows: Tensor, **further: Any
    ) -> None:
        for part in self._followers():
            part.rows_changed(table, ids, old_rows, new_rows, **further)

    def refresh(self, table: Any) -> None:
        for part in self.parts:
            part.refresh(table)

    def _followers(self) -> list[Sampler]:
        return [part for part in self.parts if part.follows]

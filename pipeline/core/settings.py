"""Base of all settings, of builds, models and trainings: frozen, unknown keys rejected, and ingredients of results."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base class of the sections: frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    later_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that were added after the first results; see `unset_later_keys`."""

    def ingredients(self) -> dict[str, Any]:
        """Return the settings as ingredients of a result, JSON values by key, without `unset_later_keys`."""
        return self.model_dump(mode="json", exclude=self.unset_later_keys())

    def unset_later_keys(self) -> dict[str, Any]:
        """Return the later keys that have their defaults, here and in the sections inside, as pydantic's `exclude`.

        They are not ingredients, so that results made before they existed stay current.
        """
        found: dict[str, Any] = {}
        for key, field in type(self).model_fields.items():
            value = getattr(self, key)
            if key in self.later_keys and value == field.default:
                found[key] = True
            elif isinstance(value, Settings) and (inside := value.unset_later_keys()):
                found[key] = inside
        return found

"""The options of one call of a table service, parsed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.engine.options.archiving import ArchivingOptions
from lakelatch.engine.options.cancellation import CancellationOptions
from lakelatch.engine.options.cleaning import CleaningOptions
from lakelatch.engine.options.clustering import ClusteringOptions
from lakelatch.engine.options.compaction import CompactionOptions
from lakelatch.engine.options.inline import InlineOptions
from lakelatch.engine.options.write import ManagerOptions, WriteOptions, normalise
from lakelatch.format.base_file_options import BaseFileOptions


@dataclass(frozen=True)
class ServiceOptions:
    """What a table service is run with."""

    compaction: CompactionOptions
    clustering: ClusteringOptions
    cleaning: CleaningOptions
    archiving: ArchivingOptions
    cancellation: CancellationOptions
    inline: InlineOptions
    base_files: BaseFileOptions
    manager: ManagerOptions

    @classmethod
    def parse(cls, options: Mapping[str, object] | None) -> ServiceOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        values = normalise(options)
        return cls._of(values, BaseFileOptions.from_options(values), ManagerOptions.from_options(values))

    @classmethod
    def beside(cls, write: WriteOptions, values: Mapping[str, str]) -> ServiceOptions:
        """As `parse`, of the options of a write that `normalise` has made ready, and what was made of them already."""
        return cls._of(values, write.base_files, write.manager)

    @classmethod
    def _of(cls, values: Mapping[str, str], base_files: BaseFileOptions, manager: ManagerOptions) -> ServiceOptions:
        return cls(
            compaction=CompactionOptions.from_options(values),
            clustering=ClusteringOptions.from_options(values),
            cleaning=CleaningOptions.from_options(values),
            archiving=ArchivingOptions.from_options(values),
            cancellation=CancellationOptions.from_options(values),
            inline=InlineOptions.from_options(values),
            base_files=base_files,
            manager=manager,
        )

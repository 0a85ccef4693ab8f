"""The options of one call of a table service, parsed together."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakelatch.engine.options.manager import ManagerOptions
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cancellation import CancellationOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.options.table_services.clustering import ClusteringOptions
from lakelatch.engine.options.table_services.compaction import CompactionOptions
from lakelatch.engine.options.table_services.inline import InlineOptions
from lakelatch.format.base_file_options import BaseFileOptions
from lakelatch.option_values import ParsedOptions


@dataclass(frozen=True)
class ServiceOptions(ParsedOptions):
    """The options of a table service."""

    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    clustering: ClusteringOptions = field(default_factory=ClusteringOptions)
    cleaning: CleaningOptions = field(default_factory=CleaningOptions)
    archiving: ArchivingOptions = field(default_factory=ArchivingOptions)
    cancellation: CancellationOptions = field(default_factory=CancellationOptions)
    inline: InlineOptions = field(default_factory=InlineOptions)
    base_files: BaseFileOptions = field(default_factory=BaseFileOptions)
    manager: ManagerOptions = field(default_factory=ManagerOptions)

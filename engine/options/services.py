"""The options of one call of a table service, parsed together."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakelatch.engine.options.archiving import ArchivingOptions
from lakelatch.engine.options.cancellation import CancellationOptions
from lakelatch.engine.options.cleaning import CleaningOptions
from lakelatch.engine.options.clustering import ClusteringOptions
from lakelatch.engine.options.compaction import CompactionOptions
from lakelatch.engine.options.inline import InlineOptions
from lakelatch.engine.options.manager import ManagerOptions
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

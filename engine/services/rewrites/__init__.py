"""Services that write file groups anew: compaction, log compaction, clustering, joins."""

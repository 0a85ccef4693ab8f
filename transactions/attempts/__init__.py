"""How an event gets into a table's log: claims, intents, the loop, its checks; commits, alone and for others."""

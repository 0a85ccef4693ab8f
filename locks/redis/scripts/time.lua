-- The server's clock, in milliseconds.
return string.format('%.0f', now_ms())

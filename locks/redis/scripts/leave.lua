-- Ends the waiting of a request. ARGV: session, request, name. Gives its token if it was granted after all, else 0.
local _, request, found = holder(ARGV[3])
redis.call('DEL', P .. 'w:' .. ARGV[2])
if request == ARGV[2] then return tonumber(string.match(found, '^%S+ %S+ (%S+)')) end
redis.call('LREM', P .. 'q:' .. ARGV[3], 0, ARGV[1] .. ' ' .. ARGV[2])
return 0

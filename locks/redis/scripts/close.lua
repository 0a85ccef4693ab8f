-- Ends a session, and serves those who waited for what it held. ARGV: session
redis.call('DEL', P .. 's:' .. ARGV[1], P .. 'b:' .. ARGV[1])
local found = redis.call('HGETALL', P .. 'locks')
for i = 1, #found, 2 do
  if string.match(found[i + 1], '^(%S+)') == ARGV[1] then serve(found[i]) end
end
return 1

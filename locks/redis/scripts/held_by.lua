-- What a session holds. ARGV: session. Gives the request and the name of each.
local mine, found = {}, redis.call('HGETALL', P .. 'locks')
for i = 1, #found, 2 do
  local session, request = string.match(found[i + 1], '^(%S+) (%S+)')
  if session == ARGV[1] then
    table.insert(mine, request)
    table.insert(mine, found[i])
  end
end
return mine

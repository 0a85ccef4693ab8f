-- Who holds names. ARGV: prefix, 1 for that name only, how many of a queue are named at most.
-- Gives {name, holder, session, waiting, sessions of those who wait} of each.
local shown, found = {}, nil
if ARGV[2] == '1' then
  found = {ARGV[1], redis.call('HGET', P .. 'locks', ARGV[1]) or ''}
else
  found = redis.call('HGETALL', P .. 'locks')
end
for i = 1, #found, 2 do
  local session = string.match(found[i + 1], '^(%S+)')
  if session and string.sub(found[i], 1, #ARGV[1]) == ARGV[1] then
    local about = redis.call('GET', P .. 's:' .. session)
    if about then
      local queue, waiters = P .. 'q:' .. found[i], {}
      for _, place in ipairs(redis.call('LRANGE', queue, 0, ARGV[3] - 1)) do
        local waits = redis.call('GET', P .. 's:' .. string.match(place, '^(%S+)'))
        if waits then table.insert(waiters, waits) end
      end
      table.insert(shown, {found[i], found[i + 1], about, redis.call('LLEN', queue), waiters})
    end
  end
end
return shown

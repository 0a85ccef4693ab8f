-- Takes a name, or queues for it. ARGV: session, request, name, lease_ms, 1 to queue, since_ms, 1 if the request may be
-- queued already. Gives {token, 0}; {0, how long the holder's session may last yet}; {-1, 0} if the session is gone.
local mine, me, name = ARGV[1], ARGV[2], ARGV[3]
local known = redis.call('EXISTS', P .. 's:' .. mine, P .. 'x:' .. me)
if known == 0 then return {-1, 0} end
if known == 2 then return {0, 1} end
local session, request, found = holder(name)
if session and not alive(session) then
  serve(name)
  session, request, found = holder(name)
end
if not session then
  if ARGV[7] == '1' then redis.call('LREM', P .. 'q:' .. name, 0, mine .. ' ' .. me) end
  return {note(name, mine, me, ARGV[6]), 0}
end
if request == me then
  redis.call('DEL', P .. 'w:' .. me)
  return {tonumber(string.match(found, '^%S+ %S+ (%S+)')), 0}
end
if ARGV[5] == '1' then
  local queue, entry = P .. 'q:' .. name, mine .. ' ' .. me
  if not redis.call('LPOS', queue, entry) then redis.call('RPUSH', queue, entry) end
  redis.call('PEXPIRE', queue, math.max(redis.call('PTTL', queue), 3 * ARGV[4]))
end
return {0, math.max(redis.call('PTTL', P .. 's:' .. session), 1)}

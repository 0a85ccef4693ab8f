"""What Redis runs for us, each atomically: sessions that expire, a queue per name, and hand-over from one to the next.

Keys, below a prefix with a hash tag, so that a cluster keeps them in one slot:
`s:<session>` the session, expiring; its value is owner and lease time. `locks` a hash, name to holder
(`session request token since_ms`). `q:<name>` who waits, in order (`session request`). `w:<request>` wakes one waiter,
with its token. `x:<request>` bars a request that was given back before it arrived. `b:<session>` requests that the
session is asked to give up. `token` the last token of all names. `r:<name>` a register.
"""

from __future__ import annotations

_COMMON = """
local P = KEYS[1]
local function alive(session) return redis.call('EXISTS', P .. 's:' .. session) == 1 end
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function next_token()
  local token = redis.call('INCR', P .. 'token')
  if token < 1000000000000 then  -- the first one, or the server was wiped: on from its clock, in milliseconds
    token = now_ms()
    redis.call('SET', P .. 'token', string.format('%.0f', token))
  end
  return token
end
local function holder(name)
  local found = redis.call('HGET', P .. 'locks', name)
  if not found then return nil end
  local session, request = string.match(found, '^(%S+) (%S+)')
  return session, request, found
end
local function note(name, session, request, since_ms)
  local token = next_token()
  redis.call('HSET', P .. 'locks', name, string.format('%s %s %.0f %s', session, request, token, since_ms))
  return token
end
local function serve(name)
  while true do
    local head = redis.call('LPOP', P .. 'q:' .. name)
    if not head then
      redis.call('HDEL', P .. 'locks', name)
      return
    end
    local session, request = string.match(head, '^(%S+) (%S+)')
    if alive(session) then
      local token = note(name, session, request, string.format('%.0f', now_ms()))
      redis.call('RPUSH', P .. 'w:' .. request, string.format('%.0f', token))
      redis.call('PEXPIRE', P .. 'w:' .. request, 60000)
      return
    end
  end
end
local function free_the_dead(limit)
  local found = redis.call('HSCAN', P .. 'locks', 0, 'COUNT', limit)[2]
  for i = 1, #found, 2 do
    if not alive(string.match(found[i + 1], '^(%S+)')) then serve(found[i]) end
  end
end
"""

# session, owner, lease_ms
OPEN = (
    _COMMON
    + """
free_the_dead(200)
redis.call('SET', P .. 's:' .. ARGV[1], ARGV[3] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return 1
"""
)

# session, lease_ms: false if it is gone, else the requests to give up; they stay until then, lest an answer is lost
RENEW = (
    _COMMON
    + """
if redis.call('PEXPIRE', P .. 's:' .. ARGV[1], ARGV[2]) == 0 then return false end
return redis.call('SMEMBERS', P .. 'b:' .. ARGV[1])
"""
)

# session: request and name of all that it holds
HELD_BY = (
    _COMMON
    + """
local mine, found = {}, redis.call('HGETALL', P .. 'locks')
for i = 1, #found, 2 do
  local session, request = string.match(found[i + 1], '^(%S+) (%S+)')
  if session == ARGV[1] then
    table.insert(mine, request)
    table.insert(mine, found[i])
  end
end
return mine
"""
)

# session
CLOSE = (
    _COMMON
    + """
redis.call('DEL', P .. 's:' .. ARGV[1], P .. 'b:' .. ARGV[1])
local found = redis.call('HGETALL', P .. 'locks')
for i = 1, #found, 2 do
  if string.match(found[i + 1], '^(%S+)') == ARGV[1] then serve(found[i]) end
end
return 1
"""
)

# session, request, name, lease_ms, 1 to queue, since_ms, 1 if it may be queued already:
# {token, 0}, or {0, how long the holder's session may last yet}
TAKE = (
    _COMMON
    + """
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
"""
)

# session, request, name: 1 if the request held the name
GIVE_BACK = (
    _COMMON
    + """
redis.call('SREM', P .. 'b:' .. ARGV[1], ARGV[2])
local _, request = holder(ARGV[3])
if request == ARGV[2] then
  serve(ARGV[3])
  return 1
end
redis.call('LREM', P .. 'q:' .. ARGV[3], 0, ARGV[1] .. ' ' .. ARGV[2])
redis.call('DEL', P .. 'w:' .. ARGV[2])
redis.call('SET', P .. 'x:' .. ARGV[2], '', 'PX', 600000)
return 0
"""
)

# session, request, name: the token if the request was granted after all, else 0 and it waits no more
LEAVE = (
    _COMMON
    + """
local _, request, found = holder(ARGV[3])
redis.call('DEL', P .. 'w:' .. ARGV[2])
if request == ARGV[2] then return tonumber(string.match(found, '^%S+ %S+ (%S+)')) end
redis.call('LREM', P .. 'q:' .. ARGV[3], 0, ARGV[1] .. ' ' .. ARGV[2])
return 0
"""
)

# name, at_least, count
ADVANCE = """
local key = KEYS[1] .. 'r:' .. ARGV[1]
local first = math.max((tonumber(redis.call('GET', key)) or 0) + 1, tonumber(ARGV[2]))
redis.call('SET', key, string.format('%.0f', first + ARGV[3] - 1))
return first
"""

# prefix, 1 for that name only: {name, holder, session, waiting} of each
HOLDERS = (
    _COMMON
    + """
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
      table.insert(shown, {found[i], found[i + 1], about, redis.call('LLEN', P .. 'q:' .. found[i])})
    end
  end
end
return shown
"""
)

# session, request, lease_ms
WISH = (
    _COMMON
    + """
redis.call('SADD', P .. 'b:' .. ARGV[1], ARGV[2])
redis.call('PEXPIRE', P .. 'b:' .. ARGV[1], 2 * ARGV[3])
return 1
"""
)

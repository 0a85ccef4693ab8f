-- Reserves values of a register. ARGV: name, at_least, count. Gives the first of them.
local key = KEYS[1] .. 'r:' .. ARGV[1]
local first = math.max((tonumber(redis.call('GET', key)) or 0) + 1, tonumber(ARGV[2]))
redis.call('SET', key, string.format('%.0f', first + ARGV[3] - 1))
return first

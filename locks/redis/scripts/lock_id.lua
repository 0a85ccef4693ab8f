-- The id that is kept for a name. ARGV: name, the one to put if there is none ('' for none).
local key = KEYS[1] .. 'i:' .. ARGV[1]
if ARGV[2] ~= '' then redis.call('SET', key, ARGV[2], 'NX') end
return redis.call('GET', key) or ''

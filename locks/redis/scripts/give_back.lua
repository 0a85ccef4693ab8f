-- Frees the name, or the request's place in the queue. ARGV: session, request, name. Gives 1 if the request held it.
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

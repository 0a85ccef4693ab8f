-- Opens a session. ARGV: session, owner, lease_ms
free_the_dead(200)
redis.call('SET', P .. 's:' .. ARGV[1], ARGV[3] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return 1

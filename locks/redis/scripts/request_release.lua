-- Leaves a release request for a session. ARGV: session, request, lease_ms
redis.call('SADD', P .. 'b:' .. ARGV[1], ARGV[2])
redis.call('PEXPIRE', P .. 'b:' .. ARGV[1], 2 * ARGV[3])
return 1

-- Renews a session. ARGV: session, lease_ms. Gives false if the session is gone, else the requests that are to be
-- released; they are told again until they are, lest an answer is lost.
if redis.call('PEXPIRE', P .. 's:' .. ARGV[1], ARGV[2]) == 0 then return false end
return redis.call('SMEMBERS', P .. 'b:' .. ARGV[1])

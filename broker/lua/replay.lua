#!lua
-- replay: submit a dead letter again, under a new id.
--
-- Atomic because the letter may go only once its request is in the ingress stream.
-- (svix/svix-webhooks#569 acked before it added, and lost what lay between.)
--
-- KEYS  1 dead letters   2 ingress stream
-- ARGV  1 entry id of the letter   then the fields of the new request
-- RESULT the new ingress entry's id, 0 where there is no such letter, nil where the model is not
--       deployed for the tenant
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then return 0 end
local added = redis.call('XADD', KEYS[2], 'NOMKSTREAM', '*', unpack(ARGV, 2))
if added then redis.call('XDEL', KEYS[1], ARGV[1]) end
return added

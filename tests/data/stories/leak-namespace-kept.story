# The runtime forgets a pod whose namespace's file stays: the address is nobody's, though the namespace has it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    kill pause of a by runtime
10s   pod web-0 goes
10s   forget a
9m    end
expect confirmed leaked_address/del_missing 10.88.0.2 web-0 a
expect confirmed orphan_netns web-0 a
expect incident leaked_address .+orphan_netns

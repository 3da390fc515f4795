# A host-network pod has no ADD; two sandboxes of it are two all the same.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of agent-0 on-host
2s    container main in a starts
9s    sandbox b of agent-0 on-host
10s   container main in b starts
9m    end
expect confirmed duplicate_sandbox/concurrent agent-0 a b

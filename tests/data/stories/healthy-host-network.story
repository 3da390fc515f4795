# A host-network pod lives and goes.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of agent-0 on-host
2s    container main in a starts
9s    stop a
10s   pod agent-0 goes
10s   remove a
9m    end
expect nothing

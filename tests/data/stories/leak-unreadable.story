# The node's files can no longer be read: nothing is concluded from what they said before.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    unreadable
9s    stop a no-del
10s   remove a no-del
9m    end
expect nothing

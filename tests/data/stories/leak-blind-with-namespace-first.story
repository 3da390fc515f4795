# The usual order: DEL with the namespace frees, DEL without one follows on removal.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on keynet 10.99.0.2
9s    stop a
60s   remove a
9m    end
expect nothing

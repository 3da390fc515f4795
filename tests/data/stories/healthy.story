# A pod lives and goes, as containerd does it: DEL once more, without the namespace, on its removal.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 1
4s    container main in a starts
60s   stop a
61s   pod web-0 goes
61s   remove a
9m    end
expect nothing

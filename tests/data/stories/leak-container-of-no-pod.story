# Podman's and nerdctl's containers have addresses of the node's networks too, and no runtime of pods knows them.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    plain p on podnet 10.88.0.3
3s    plain default-n on podnet 10.88.0.4
9m    end
expect nothing

# After a reboot the runtime cleans up a sandbox of before, and the pid in its path is that of a program of the node.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 before boot
2s    sandbox b of web-1 on podnet 10.88.0.3
10s   del a podnet in process of node
11s   forget a
9m    end
expect confirmed cni_wrong_del/node_netns bridge web-0 a since 10s

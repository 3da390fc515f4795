# The ADD is killed, and the runtime calls DEL.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
2s    add a podnet killed
3s    netns of a lost
9m    end
expect confirmed cni_wrong_del/add_killed bridge web-0 a since 2s

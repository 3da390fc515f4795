# The kubelet cannot reach the API server since it started: it has no Services for the environment of the container.
0s    runtime starts
0s    kubelet starts
1s    pod flannel-0
2s    sandbox a of flannel-0 on podnet 10.88.0.2
3s    kubelet says of flannel-0 CreateContainerConfigError: services have not yet been read at least once, cannot construct envvars
9m    kubelet says of flannel-0 CreateContainerConfigError: services have not yet been read at least once, cannot construct envvars
14m   end
expect confirmed stuck_start/container flannel-0 a since 2s says services

# As much of nixpkgs as flake.nix uses. Its programs are this machine's, found on PATH when a check is built, so the
# check's commands really run; a package that flake.nix names and that is not listed here stops the evaluation.
{ system, config }:
assert config.allowUnfree;
let
  shell = "/bin/bash";
  build =
    name: script: more:
    builtins.derivation (
      {
        inherit name system;
        builder = shell;
        args = [
          "-euc"
          # Nix takes the end of what a builder prints for its end, and kills it at once, which new kernels report as
          # its exit code where it was just leaving: so something prints on for a moment.
          ''
            PATH=$HOST_PATH
            ${script}
            sleep 0.3 &
          ''
        ];
        HOST_PATH = builtins.getEnv "HOST_PATH";
      }
      // more
    );
  package = name: build name "mkdir -p $out/bin" { };
  named = names: builtins.listToAttrs (map (name: { inherit name; value = package name; }) names);
  makeLibraryPath = packages: builtins.concatStringsSep ":" (map (one: "${one}/lib") packages);
in
named [
  "bash"
  "coreutils"
  "diffutils"
  "gawk"
  "gcc"
  "getconf"
  "git"
  "gnugrep"
  "gnused"
  "ruff"
  "util-linux"
  "uv"
  "zlib"
]
// {
  lib = {
    inherit makeLibraryPath;
    inherit (builtins)
      concatStringsSep
      elemAt
      filter
      head
      listToAttrs
      tail
      ;
    optional = condition: one: if condition then [ one ] else [ ];
    optionalAttrs = condition: given: if condition then given else { };
    splitString = separator: text: builtins.filter builtins.isString (builtins.split separator text);
    trim = text: builtins.head (builtins.match "(.*[^\n])\n*" text);
  };
  stdenv.cc.cc.lib = package "gcc-lib";
  cudaPackages_12_8.cudatoolkit = package "cudatoolkit-12.8";
  cudaPackages_13_0.cudatoolkit = package "cudatoolkit-13.0";
  python311 = package "python311" // {
    withPackages =
      choose:
      builtins.seq (builtins.toJSON (
        map (one: one.name) (
          choose (named [
            "msgspec"
            "nvidia-ml-py"
            "psutil"
            "pytest"
            "pytest-benchmark"
            "tabulate"
          ])
        )
      )) (package "python311-with-packages");
  };
  mkShell =
    { packages, ... }@given:
    build "shell" "touch $out" (builtins.removeAttrs given [ "packages" ] // { nativeBuildInputs = packages; });
  runCommand =
    name: given: script:
    build name script given;
  writeShellApplication =
    { name, runtimeInputs, text }:
    build name ''mkdir -p $out/bin; printf '%s\n' "#!${shell}" "set -euo pipefail" "$text" >$out/bin/${name}; chmod +x $out/bin/${name}'' {
      inherit text runtimeInputs;
    };
}

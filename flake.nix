# The toolchain, pinned by Nix; the stack itself is the lock's, installed by run_all.sh with every hash checked.
#
#   nix develop              Python 3.11, uv, a compiler, and the environment of locks/cpu.lock
#   nix develop .#hopper     the same with CUDA 13.0 and requirements.lock, TF32 as in the image; one shell per GPU
#                            generation of images/generations.csv (volta with CUDA 12.8 and locks/volta.lock), and every
#   nix run . -- WORDS       run_all.sh WORDS
#   nix run .#test -- WORDS  run_all.sh test WORDS
#   nix flake check          formatting, and the tests that need no stack
{
  description = "Re-runs the benchmark of '$100K or 100 Days' on the GPUs at hand and diffs it with the paper's Table 1";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";

  outputs =
    { self, nixpkgs }:
    let
      system = "x86_64-linux"; # as the locks are
      pkgs = import nixpkgs {
        inherit system;
        config.allowUnfree = true; # CUDA
      };
      inherit (pkgs) lib;

      tools = [
        pkgs.bash
        pkgs.coreutils
        pkgs.diffutils
        pkgs.gawk
        pkgs.gcc
        pkgs.getconf
        pkgs.git
        pkgs.gnugrep
        pkgs.gnused
        pkgs.python311
        pkgs.util-linux # flock
        pkgs.uv
      ];
      # What wheels for any Linux expect of the system, and where NixOS keeps the driver.
      libraries =
        lib.makeLibraryPath [
          pkgs.stdenv.cc.cc.lib
          pkgs.zlib
        ]
        + ":/run/opengl-driver/lib";
      # A shell a row of images/generations.csv, but for `paper` and `latest`, which are images alone.
      rows = map (lib.splitString ",") (lib.tail (lib.splitString "\n" (lib.trim (builtins.readFile ./images/generations.csv))));
      shells = lib.listToAttrs (map shell (lib.filter (row: shellStacks ? ${lockOf row}) rows));
      lockOf = row: lib.elemAt row 3;
      shellStacks = {
        "locks/cpu.lock".name = "cpu";
        "locks/volta.lock" = {
          name = "volta";
          cuda = pkgs.cudaPackages_12_8.cudatoolkit;
        };
        # NixOS does not run the compiler of locks/nvcc.lock, which expects its loader where other systems have it.
        "requirements.lock" = {
          name = "gpu";
          cuda = pkgs.cudaPackages_13_0.cudatoolkit;
        };
      };
      shell =
        row:
        let
          stack = shellStacks.${lockOf row};
        in
        {
          name = lib.head row;
          value = pkgs.mkShell (
            {
              packages = tools ++ lib.optional (stack ? cuda) stack.cuda;
              LD_LIBRARY_PATH = libraries;
              REPRO_TF32 = lib.elemAt row 2;
              UV_PYTHON_DOWNLOADS = "never";
              shellHook = ''
                locks/install.sh .venv/${stack.name} ${lockOf row} locks/dev.lock && . .venv/${stack.name}/bin/activate
              '';
            }
            // lib.optionalAttrs (stack ? cuda) { CUDA_HOME = stack.cuda; }
          );
        };

      # A checkout of one's own: the set-up lies in it, and the store is read-only.
      checkout = ''
        here=''${XDG_CACHE_HOME:-$HOME/.cache}/repro/${baseNameOf self.outPath}
        if [[ ! -x $here/run_all.sh ]]; then
          mkdir -p "''${here%/*}"
          copy=$(mktemp -d "$here.XXXX")
          cp --recursive --no-preserve=mode,ownership ${self}/. "$copy"
          chmod +x "$copy"/*.sh "$copy"/*/*.sh
          mv --no-target-directory "$copy" "$here" || rm -r "$copy"
        fi
      '';
      program =
        name: words:
        let
          script = pkgs.writeShellApplication {
            inherit name;
            runtimeInputs = tools;
            text = ''
              export LD_LIBRARY_PATH=${libraries} UV_PYTHON_DOWNLOADS=never
              ${checkout}
              exec "$here/run_all.sh" ${words} "$@"
            '';
          };
        in
        {
          type = "app";
          program = "${script}/bin/${name}";
        };

      check =
        name: packages: command:
        pkgs.runCommand name { nativeBuildInputs = packages; } ''
          cp --recursive --no-preserve=mode ${self} source
          cd source
          chmod +x ./*.sh ./*/*.sh .ci/run
          export HOME=$TMPDIR PYTHONDONTWRITEBYTECODE=1
          ${command}
          touch $out
        '';
      fastTests = [
        "tests/machine/test_doctor.py"
        "tests/test_extrapolate.py"
        "tests/setup/test_images.py"
        "tests/run/test_plan.py"
        "tests/machine/test_support.py"
        "tests/paper/test_settings.py"
        "tests/run/test_verdict.py"
      ];
    in
    {
      devShells.${system} = shells // {
        default = shells.cpu;
      };

      apps.${system} = rec {
        default = run;
        run = program "repro" "";
        test = program "repro-test" "test";
      };

      checks.${system} = {
        formatting = check "formatting" [ pkgs.ruff ] "ruff check --no-cache . && ruff format --no-cache --check .";
        tests =
          check "tests"
            [
              pkgs.git
              (pkgs.python311.withPackages (python: [
                python.msgspec
                python.nvidia-ml-py
                python.psutil
                python.pytest
                python.pytest-benchmark
                python.tabulate
              ]))
            ]
            "python3 -m pytest -p no:cacheprovider -q ${lib.concatStringsSep " " fastTests}";
      };
    };
}

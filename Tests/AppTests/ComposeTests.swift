import Foundation
import Testing

@Suite("A compose file", .timeLimit(.minutes(15)))
struct ComposeTests {
  @Test(
    "the file has a valid configuration, and all files and services that it names exist",
    arguments: ["deploy/compose.yaml", "deploy/compose.cluster.yaml"])
  func checked(file: String) async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    // Reads the file like Compose: required variables must be set, and `depends_on` and mounts must exist.
    let said = try await Shell.run(
      """
      /usr/bin/python3 - '\(file)' '\(folder)/imagefetch.yaml' 2>&1 <<'PY'
      import json, pathlib, re, sys, yaml
      path = pathlib.Path(sys.argv[1])
      whole = yaml.safe_load(re.sub(r'\\$\\{\\w+:\\?[^}]*\\}', 'ab' * 32, path.read_text()))
      for name, service in whole['services'].items():
          for other in service.get('depends_on', []):
              assert other in whole['services'], (name, other)
          for config in service.get('configs', []):
              assert config['source'] in whole['configs'], (name, config)
          for mount in service.get('volumes', []):
              source = mount.split(':')[0]
              if source.startswith('.'):
                  assert (path.parent / source).exists(), (name, mount)
              else:
                  assert source.startswith('/') or source in whole['volumes'], (name, mount)
      for server in re.findall(r'server ([\\w-]+):8080', (path.parent / 'cluster.nginx').read_text()):
          assert 'cluster' not in path.name or server in whole['services'], server
      for name, config in whole['configs'].items():
          (json if name.endswith('.json') else yaml).__dict__['loads' if name.endswith('.json') else 'safe_load'](config['content'])
      pathlib.Path(sys.argv[2]).write_text(whole['configs']['imagefetch.yaml']['content'])
      PY
      """, in: Readme.root)
    #expect(said == "")
    let run = try CommandRun(
      ["check", "--config", folder + "/imagefetch.yaml"], ["IMAGEFETCH_SERVER_HOST": "0.0.0.0"])
    #expect(run.status == 0, "\(run)")
  }
}

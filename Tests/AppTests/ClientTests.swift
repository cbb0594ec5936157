import Foundation
import TestSupport
import Testing

/// The modules of clients/, and what generators make of openapi.yaml, with the service itself.
@Suite("A client", .timeLimit(.minutes(10)))
struct ClientTests {
  private static let key = "00112233445566778899aabbccddeeff"

  /// A service, an origin, and a folder of the client's own, told to a shell as `API`, `ORIGIN`, `ROOT`.
  private func run(_ commands: String, _ settings: [String: String] = [:]) async throws -> String {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/photo.jpg", .ok(Fixtures.jpeg, type: "image/jpeg"))
    origin.on("/slow.jpg", .stalled(Fixtures.jpeg, after: 1000))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let local = ["IMAGEFETCH_SOURCES_LOCAL_ROOT": Readme.root + "Tests/Fixtures/images"]
    var output = ""
    try await withService(local.merging(settings) { $1 }) { service in
      let head = """
        set -eu; exec 2>&1
        export API='\(service.base)' ORIGIN='\(origin.url(""))' ROOT='\(Readme.root)' VIEW_KEY=\(Self.key)
        export PYTHONDONTWRITEBYTECODE=1

        """
      output = try await Shell.run(head + commands + "\necho passed", in: folder, within: 300)
    }
    return output
  }

  @Test("in Python does as clients/python says")
  func python() async throws {
    let output = try await run(
      "cd \"$ROOT/clients/python\"; /usr/bin/python3 -W error test_imagefetch.py",
      ["IMAGEFETCH_VIEW_ENABLED": "true", "IMAGEFETCH_VIEW_KEYS": Self.key])
    #expect(output.contains("\nOK\n") && output.hasSuffix("passed\n"), "\(output)")
  }

  @Test("in JavaScript does as clients/javascript says")
  func javaScript() async throws {
    let output = try await run("node --test \"$ROOT/clients/javascript/\"")
    #expect(output.contains("# fail 0\n") && output.hasSuffix("passed\n"), "\(output)")
  }

  @Test("in a page shows an image and its progress, or says why there is none")
  func page() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/photo.jpg", .ok(Fixtures.jpeg, type: "image/jpeg"))
    origin.on("/page", .ok(Array("<!doctype html><title>A page</title>".utf8), type: "text/html"))
    let module = Array(Readme.file("clients/javascript/imagefetch.js").utf8)
    origin.on("/imagefetch.js", .ok(module, type: "text/javascript"))
    try await withService(["IMAGEFETCH_SERVER_CORS_ORIGINS": origin.url("")]) { service in
      let browser = try await Browser()
      try await browser.open(origin.url("/page"))
      let call = """
        const { Client } = await import('/imagefetch.js');
        const client = new Client(arguments[0]);
        const seen = [];
        try {
          const job = await client.fetch(arguments[1], { onProgress: (job) => seen.push(job.progress.fraction) });
          const image = new Image();
          image.src = client.imageURL(job, { width: 320, format: 'webp' });
          await image.decode();
          return [image.naturalWidth, image.naturalHeight, seen.at(-1)];
        } catch (error) {
          return `${error.name} ${error.code}`;
        }
        """
      let shown = try await browser.run(call, [service.base, origin.url("/photo.jpg")])
      #expect(shown as? [Int] == [320, 213, 1], "\(String(describing: shown))")
      let failed = try await browser.run(call, [service.base, origin.url("/none.jpg")]) as? String
      #expect(failed == "Failed origin_status")
      let refused = try await browser.run(call, [service.base, "ftp://a/"]) as? String
      #expect(refused == "Refused invalid_url")
      await browser.close()
    }
  }

  @Test("generated for Python submits, polls, lists and gets images")
  func generatedPython() async throws {
    let output = try await run(
      """
      make --no-print-directory -C "$ROOT" .build-clients/installed
      PATH="$ROOT.build-clients/bin:$PATH"
      openapi-python-client generate --path "$ROOT/openapi.yaml" --config "$ROOT/clients/openapi-python-client.yaml" \
        --output-path generated --meta none > log.txt 2>&1 || cat log.txt
      grep WARNING log.txt || true
      PYTHONPATH=. python "$ROOT/Tests/Clients/use-generated.py"
      """)
    #expect(output.hasSuffix("done\npassed\n") && !output.contains("WARNING"), "\(output)")
  }

  @Test("generated for TypeScript submits, polls, lists and gets images")
  func generatedTypeScript() async throws {
    let output = try await run(
      """
      make --no-print-directory -C "$ROOT" .build-clients/installed
      "$ROOT.build-clients/bin/openapi-generator-cli" generate \
        -i "$ROOT/openapi.yaml" -g typescript-fetch -o generated > log.txt 2>&1 || cat log.txt
      esbuild generated/index.ts --bundle --platform=node --format=esm --outfile=client.mjs --log-level=warning
      node "$ROOT/Tests/Clients/use-generated.mjs" "$PWD/client.mjs"
      """)
    #expect(output.hasSuffix("done\npassed\n"), "\(output)")
  }
}

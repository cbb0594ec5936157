import Foundation
import TestSupport
import Testing

/// Tests the libraries in clients/ and generated clients with a real service.
@Suite("A client", .timeLimit(.minutes(10)))
struct ClientTests {
  private static let key = "00112233445566778899aabbccddeeff"
  private static let secrets = [1, 2].map {
    "whsec_" + Data(repeating: $0, count: 32).base64EncodedString()
  }.joined(separator: ",")
  private static let webhooks = [
    "IMAGEFETCH_WEBHOOKS_SECRETS": secrets, "IMAGEFETCH_WEBHOOKS_ALLOW_HTTP": "true",
    "IMAGEFETCH_WEBHOOKS_ALLOW_NETWORKS": "127.0.0.0/8", "IMAGEFETCH_WEBHOOKS_ALLOW_PORTS": "",
  ]

  /// Runs commands with a service and an origin in a folder of the client's own. The environment has `API`,
  /// `ORIGIN` and `ROOT`.
  private func run(_ commands: String, _ settings: [String: String] = [:]) async throws -> String {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/photo.jpg", .ok(Fixtures.jpeg, type: "image/jpeg"))
    origin.on("/slow.jpg", .stalled(Fixtures.jpeg, after: 1000))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let local = ["IMAGEFETCH_SOURCES_LOCAL_ROOT": Readme.root + "Tests/Fixtures/images"]
    var output = ""
    let all = local.merging(Self.webhooks) { $1 }.merging(settings) { $1 }
    try await withService(all) { service in
      let head = """
        set -eu; exec 2>&1
        export API='\(service.base)' ORIGIN='\(origin.url(""))' ROOT='\(Readme.root)' VIEW_KEY=\(Self.key)
        export PYTHONDONTWRITEBYTECODE=1 WEBHOOK_SECRETS='\(Self.secrets)'

        """
      output = try await Shell.run(head + commands + "\necho passed", in: folder, within: 300)
    }
    return output
  }

  @Test("the Python client does what clients/python documents")
  func python() async throws {
    let output = try await run(
      "cd \"$ROOT/clients/python\"; /usr/bin/python3 -W error test_imagefetch.py",
      ["IMAGEFETCH_VIEW_ENABLED": "true", "IMAGEFETCH_VIEW_KEYS": Self.key])
    #expect(output.contains("\nOK\n") && output.hasSuffix("passed\n"), "\(output)")
  }

  @Test("the JavaScript client does what clients/javascript documents")
  func javaScript() async throws {
    let output = try await run("node --test \"$ROOT/clients/javascript/\"")
    #expect(output.contains("# fail 0\n") && output.hasSuffix("passed\n"), "\(output)")
  }

  @Test("a webhook receiver as in docs/clients.md accepts only the service's messages")
  func receivers() async throws {
    let section = Readme.section("Webhooks", of: Readme.file("docs/clients.md"))
    let python = try #require(section.firstMatch(of: #/(?s)```python\n(.*?)\n```/#)?.1)
    let script = try #require(section.firstMatch(of: #/(?s)```js\n(.*?)\n```/#)?.1)
    let python3 = "PYTHONPATH=\"$ROOT/clients/python\" exec /usr/bin/python3 -W error receiver"
    for (program, command) in [(python, python3), (script, "exec node receiver.mjs")] {
      let port = try PostgresServer.freePort()
      let code = program.replacing("9300", with: "\(port)")
      #expect(code != program)
      let output = try await run(
        #"""
        cp "$ROOT/clients/javascript/imagefetch.js" .
        cat > receiver <<'END'
        \#(code)
        END
        cp receiver receiver.mjs
        export WEBHOOK_SECRET="${WEBHOOK_SECRETS#*,}"
        (\#(command)) > received.txt 2> log.txt & receiver=$!
        trap 'kill $receiver; cat log.txt' EXIT
        hook=http://127.0.0.1:\#(port)/hook
        until curl -s -o answer.txt $hook; do sleep 0.05; done
        curl -s -o answer.txt -w '%{http_code}\n' -d '{}' $hook
        curl -s -o answer.txt -w '%{http_code}\n' -d '{"type": "job.success"}' -H 'webhook-id: msg' \
          -H "webhook-timestamp: $(date +%s)" -H "webhook-signature: v1,$(head -c 32 /dev/zero | base64)" $hook
        id=$(curl -s -H 'Content-Type: application/json' "$API/jobs" \
          -d '{"url": "'"$ORIGIN"'/photo.jpg", "notify": {"url": "'$hook'"}}' | sed 's/^{"id":"\([^"]*\)".*/\1/')
        for _ in $(seq 200); do if [ -s received.txt ]; then break; fi; sleep 0.1; done
        echo "expected job.success $id"
        sed 's/^/received /' received.txt
        """#)
      let lines = output.split(separator: "\n").map(String.init)
      #expect(lines.prefix(2).elementsEqual(["400", "400"]), "\(output)")
      let expected = try #require(lines.first { $0.hasPrefix("expected ") }, "\(output)")
      let received = lines.filter { $0.hasPrefix("received ") }
      #expect(received == ["received " + expected.dropFirst("expected ".count)], "\(output)")
    }
  }

  @Test("a page shows an image and its progress, or the reason why there is no image", .browser)
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

  @Test("a client generated for Python submits, polls, lists and reads images")
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

  @Test("a client generated for TypeScript submits, polls, lists and reads images")
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

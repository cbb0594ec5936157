import Digests
import Foundation
import TestSupport
import Testing

/// Checks a service against its openapi.yaml with schemathesis: see Tests/Fixtures/contract_checks.py.
@Suite("The API", .timeLimit(.minutes(60)))
struct ContractTests {
  /// The number of requests for each operation and phase.
  private static let examples = ProcessInfo.processInfo.environment["LONG_TESTS"] == "1" ? 60 : 3
  /// The checks that contract_checks.py calls itself.
  private static let wrapped = [
    "positive_data_acceptance", "negative_data_rejection", "missing_required_header",
    "unsupported_method", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "ensure_resource_availability",
  ]

  @Test("the service behaves as openapi.yaml says, for all requests in any order")
  func schemathesis() async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let token = "a-token-that-may-do-everything"
    let digest = SHA256.hash(data: Data(token.utf8)).map { String(format: "%02x", $0) }.joined()
    try "- { name: all, sha256: \"\(digest)\", scopes: [jobs, admin] }\n".write(
      toFile: folder + "/tokens.yaml", atomically: true, encoding: .utf8)
    let settings = [
      "IMAGEFETCH_AUTH_TOKENS_FILE": folder + "/tokens.yaml", "IMAGEFETCH_API_MAX_WAIT": "100ms",
      // No origin is requested, because every job fails with blocked_address.
      "IMAGEFETCH_FETCH_ALLOW_HOSTS": "none.invalid",
      "IMAGEFETCH_WEBHOOKS_ALLOW_HOSTS": "none.invalid",
    ]
    try await withService(settings) { service in
      let output = try await Shell.run(
        """
        set -eu; exec 2>&1
        make --no-print-directory -s -C '\(Readme.root)' .build-checkers/installed >/dev/null
        export SCHEMATHESIS_HOOKS=contract_checks PYTHONPATH='\(Readme.root)Tests/Fixtures'
        export PYTHONDONTWRITEBYTECODE=1
        '\(Readme.root).build-checkers/bin/st' run '\(Readme.root)openapi.yaml' --url \(service.base) \
          --checks all --exclude-checks \(Self.wrapped.joined(separator: ",")) --max-examples \(Self.examples) \
          --seed 7 --generation-database none --continue-on-failure --request-timeout 60 \
          --header 'Authorization: Bearer \(token)' --exclude-path-regex 'events$' --no-color
        echo passed
        """, in: folder, within: 3_000)
      #expect(output.hasSuffix("passed\n"), "\(output)")
      #expect(output.contains(#/(\d+) generated/#))
    }
  }
}

import Testing

@Suite("The Helm chart", .timeLimit(.minutes(15)))
struct ChartTests {
  @Test("the chart has the objects of the plain manifests, and values change them")
  func rendered() async throws {
    let said = try await Shell.run(
      "/usr/bin/python3 .ci/chart 2>&1; echo \"status $?\"", in: Readme.root)
    #expect(said.hasSuffix("status 0\n"), "\(said)")
    #expect(said.contains("kind: Deployment") && said.contains("kind: Ingress"))
  }
}

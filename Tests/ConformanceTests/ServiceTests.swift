import Testing

@Suite("HTTP caching through the service, case by case", .timeLimit(.minutes(15)))
struct ServiceTests {
  @Test("the service passes each case", arguments: Group.all.filter { !$0.cases.isEmpty })
  func cases(group: Group) async throws {
    // Responses without explicit freshness get heuristic freshness. A failed job is not retried.
    let settings = [
      "IMAGEFETCH_CACHE_DEFAULT_TTL": "0s", "IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1",
    ]
    try await withService(settings) { service in
      await withTaskGroup { tasks in
        for row in group.cases {
          tasks.addTask {
            do {
              #expect(try await faults(of: row, on: service) == [])
            } catch {
              Issue.record(error, "\(row.id)")
            }
          }
        }
      }
    }
  }

  /// Repeats a run that was too slow to be valid.
  private func faults(of row: Case, on service: RunningService) async throws -> [String] {
    var faults: [String] = []
    for _ in 0..<10 {
      let isValid: Bool
      (faults, isValid) = try await CaseRun(row, on: service).run()
      if faults.isEmpty || isValid { break }
    }
    return faults
  }
}

// Processes that share a board, as children of a test. The test itself does not load the plugin:
// each child does, and tells the test what it found by a pipe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tpu::test {

/// In the child: what it may do beside the calls of the plugin.
class Reporter {
 public:
  explicit Reporter(int pipe) : pipe_(pipe) {}
  /// A line for the test.
  void say(const std::string& line) const;

 private:
  int pipe_;
};

using Variables = std::map<std::string, std::string>;

class Member {
 public:
  /// Runs `work` in a child with these variables of the environment.
  Member(const Variables& variables, const std::function<void(const Reporter&)>& work);
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  /// Kills it if it is still there; a failure of the test if it has ended with a failure.
  ~Member();

  int pid() const { return pid_; }
  /// The next line that it says; empty when it has ended, or after so long.
  std::string line(std::chrono::seconds limit = std::chrono::seconds(60));
  /// All that it says until it ends; a failure of the test when it does not end in time, or ends
  /// otherwise than it should.
  std::string rest(std::chrono::seconds limit = std::chrono::seconds(60));
  void send_signal(int number) const;

 private:
  bool read_more(std::chrono::steady_clock::time_point until);

  int end() const;  // waits; exit code, or less than zero: the signal

  int pid_ = 0;
  int pipe_ = -1;
  mutable bool killed_ = false;  // by the test
  bool over_ = false;
  std::string read_;
};

/// The processes of one job, which meet in a folder of their own.
class Job {
 public:
  using Work = std::function<void(int process, const Reporter& reporter)>;
  explicit Job(int processes);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Starts a process.
  Member& start(int process, const Work& work, const Variables& more = {});
  void start_all(const Work& work);
  Member& at(size_t index) { return *members_[index]; }
  size_t size() const { return members_.size(); }
  const std::string& folder() const { return folder_; }
  /// Of the process that has the board; 0: there is none.
  int server() const;
  /// How many processes have a board; more than one: the job is split.
  int servers() const;
  /// False when it is still there after so long.
  bool server_ends(std::chrono::seconds limit = std::chrono::seconds(20)) const;

 private:
  void for_each_server(const std::function<void(int process)>& work) const;

  const int processes_;
  std::string folder_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace tpu::test

// Health: whether the board can be used, and what calls and operations are told when it cannot. A
// board is open, being closed, or closed; it may break once, by itself or by being closed. Guarded
// by the board lock.
#pragma once

#include <exception>
#include <memory>

#include "tpu/error.hpp"

namespace tpu::driver {

using ErrorPtr = std::shared_ptr<const Error>;

class Health {
 public:
  /// At the start of a call: throws FailedPrecondition when the board is closed; when it is broken,
  /// what broke it once, and Unavailable from then on.
  void check_usable();
  /// Later in a call: throws what has broken the board meanwhile.
  void check_unbroken();

  /// Why nothing goes on any more; null while all is well.
  const ErrorPtr& broken() const { return broken_; }
  /// False when it was broken before: the first reason is the one that is told.
  bool break_by(const ErrorPtr& reason);

  bool closed() const { return closed_; }
  void close() { closed_ = true; }
  /// A thread closes it, between these two.
  bool closing() const { return closing_; }
  void begin_closing() { closed_ = closing_ = true; }
  void end_closing() { closing_ = false; }

  /// What launches that have not started end with; null: they do start.
  const ErrorPtr& cancelled() const { return cancelled_; }
  void cancel(const ErrorPtr& reason) { cancelled_ = reason; }

 private:
  bool closed_ = false;
  bool closing_ = false;
  ErrorPtr broken_;
  bool told_ = false;  // a call has said why it is broken
  ErrorPtr cancelled_;
};

/// The error of a board whose model threw that.
ErrorPtr model_error(const std::exception& error);
/// The error of an operation whose call failed half-way. Made ahead of need: it serves where memory
/// may be short.
ErrorPtr given_up();

}  // namespace tpu::driver
